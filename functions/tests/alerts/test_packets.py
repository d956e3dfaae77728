"""Cutting images out of a message, and putting them back."""

from hypothesis import given
from hypothesis import strategies as st

from stampede.alerts import packets
from stampede.alerts.packets import LEAST, Cut, joined

IMAGES = {kind: bytes([number]) * (LEAST + number) for number, kind in enumerate("abc", 65)}


def cut(message, images) -> tuple[bytes, list[Cut]]:
    """The packet of a message, and what was cut out."""
    kept, cuts = packets.cut(message, images)
    return b"".join(kept), cuts


pieces = st.lists(st.one_of(st.binary(max_size=30), st.sampled_from(sorted(IMAGES))), max_size=8)


@given(pieces, st.booleans())
def test_a_message_comes_back(parts: list, as_view: bool) -> None:
    """Whether its images are views of it or equal bytes, wherever and how often they occur."""
    message = memoryview(b"".join(IMAGES.get(part, part) for part in parts))
    images, at = {}, 0
    for part in parts:
        size = len(IMAGES.get(part, part))
        if part in IMAGES:
            images[part] = message[at : at + size] if as_view else IMAGES[part]
        at += size
    packet, cuts = cut(message, images | {"none": None, "elsewhere": b"x" * 600})
    assert {each.kind for each in cuts} == set(images)
    assert len(packet) == len(message) - sum(map(len, images.values()))
    assert joined(packet, cuts, lambda each: [IMAGES[each.kind]]) == message
    halves = {kind: (image[:100], image[100:]) for kind, image in IMAGES.items()}
    assert joined(packet, cuts, lambda each: halves[each.kind]) == message


def test_a_short_image_stays_and_equal_images_are_cut_once() -> None:
    image = b"x" * LEAST
    message = b"before" + image + b"after"
    assert cut(message, {"a": b"before"}) == (message, [])
    packet, cuts = cut(message, {"a": image, "b": bytes(image)})
    assert (packet, len(cuts)) == (b"beforeafter", 1)
    # Of two views of one place too.
    view = memoryview(message)
    assert len(cut(view, {"a": view[6:-5], "b": view[7:-5]})[1]) == 1
