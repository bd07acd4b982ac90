"""Deployments of several machines, one of each kind for the session."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.servers import SessionServers
from tests.topologies.machines import Cluster, Machines, ReplicaSet, Sentinels

LONG = os.environ.get("LEDGERCTL_TEST_TOPOLOGIES") == "long"


@pytest.fixture(scope="session")
def machines(servers: SessionServers) -> Iterator[Machines]:
    started = Machines(servers, Path(mkdtemp(prefix="topologies-", dir=servers.directory)))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="session")
def replica_set(machines: Machines) -> ReplicaSet:
    return ReplicaSet(machines)


@pytest.fixture(scope="session")
def sentinels(machines: Machines) -> Sentinels:
    return Sentinels(machines)


@pytest.fixture(scope="session")
def cluster(machines: Machines) -> Cluster:
    return Cluster(machines)
