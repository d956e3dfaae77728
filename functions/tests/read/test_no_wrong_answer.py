"""Every object of a bucket is damaged in every way: no response is wrong and says nothing of it."""

import json
import os
import random
import time

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from tests.support.read.answers import Answer, Request, ask, cones_of, requests_of, same, surplus
from tests.support.store.rotten import Rotten, Way, Without, change
from tests.support.store.whole_store import Filled, fill_store

ROUNDS, LEAST = int(os.environ.get("ROUNDS", "1")), 400
"""LEAST: of each request to a store, how many answers there are at least."""
SEED = int(os.environ.get("SEED", "0")) or (12 if ROUNDS == 1 else time.time_ns() % 1_000_000)
AT_ONCE = [8, pytest.param(48, marks=pytest.mark.nightly)]
"""Requests to each store."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return fill_store(tmp_path_factory.mktemp("store"))


@pytest.mark.anyio
@pytest.mark.long
@pytest.mark.timeout(900 * ROUNDS)
@pytest.mark.parametrize("at_once", AT_ONCE)
async def test_no_answer_is_wrong_unsaid(filled: Filled, at_once: int) -> None:
    store = Rotten(in_memory(filled))
    asked = await requests_for(filled, store)
    truth = await answers(store, asked)
    refused = [request.path for request, response in truth.items() if response.status > 302]
    assert [path for path in refused if not path.endswith("thumbnail")] == []
    dice, count, wrong, begun = random.Random(SEED), 0, list[str](), time.process_time()
    print(f"again with ROUNDS={ROUNDS} SEED={SEED}")
    for key in [info.key for info in store.list("")] * ROUNDS:
        for way in Way:
            store.same_etag = not store.same_etag
            store.changed = change(store.inner, key, way, dice)
            found = await answers(store, dice.sample(asked, at_once))
            count += len(found)
            for request, response in found.items():
                if fault := await fault_of(request, response, truth[request], store):
                    wrong.append(f"{way} {key}: {request.path}: {response.status}, {fault}")
    print(f"{count} answers, {time.process_time() - begun:.0f} s of CPU")
    assert not wrong, "\n".join(wrong)
    assert count >= LEAST * at_once


async def fault_of(request: Request, response: Answer, truth: Answer, store: Rotten) -> str:
    """What is wrong with a response; empty if it is the truth, or says what it may lack.

    A response that may lack something has no other rows than the store has without some of the
    objects that are damaged: an older version of a row, for example.
    """
    if same(response, truth):
        return ""
    if not response.flagged:
        return "not the truth, and does not say so"
    if not surplus(request, response, [truth]):
        return ""
    lost = [store.changed.keys(), *({key} for key in store.changed if len(store.changed) > 1)]
    others = [(await answers(Without(store.inner, keys), [request]))[request] for keys in lost]
    extra = surplus(request, response, [truth, *others])
    return f"has what is not stored: {extra[0]!r:.300}" if extra else ""


def in_memory(filled: Filled) -> MemoryObjects:
    objects = MemoryObjects()
    for info in filled.objects.list(""):
        objects.put(info.key, filled.objects.get(info.key))
    return objects


async def requests_for(filled: Filled, store: Rotten) -> list[Request]:
    asked = requests_of(filled)
    curve = Request(f"/v1/objects/{filled.object_ids[0]}/lightcurve")
    point = json.loads((await answers(store, [curve]))[curve].body)["detections"][0]
    return asked + cones_of(point["ra"], point["dec"])


async def answers(store: Objects, asked: list[Request]) -> dict[Request, Answer]:
    """The responses of a `read` that starts now."""
    app = make_app(Settings(), store)
    found = {request: await ask(app, request) for request in asked}
    await app.state.service.close()
    return found
