"""Fink's cutout service on S3 in place of HDFS: run by its own Python, not by Stampede's.

It connects to HDFS for every request. Hadoop's client keeps that connection, so one connection
to S3 stands for all of them.
"""

import os

from pyarrow import fs

_S3 = fs.S3FileSystem(
    access_key=os.environ["AWS_ACCESS_KEY_ID"],
    secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
    endpoint_override=os.environ["S3_ENDPOINT"],
    region="us-east-1",
)
fs.HadoopFileSystem = lambda *_, **__: _S3

from app_ztf import app  # noqa: E402 - it takes the name of the file system from its module

__all__ = ["app"]
