"""Numbers of variable length: Avro, Thrift and Parquet write them alike.

https://en.wikipedia.org/wiki/LEB128
"""

_BYTES = [bytes([number]) for number in range(0x80)]


def leb128(number: int) -> bytes:
    """A number that is not negative, seven bits a byte, low bits first."""
    if number < 0x80:
        return _BYTES[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
