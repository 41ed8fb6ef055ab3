"""Studies on a dask cluster: by address, a local one, or any cluster object (Slurm, Kubernetes, ...)."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.parse
from typing import Any

from needlepoint.core.errors import InvalidParameter, NeedlepointError, one_line, shown
from needlepoint.core.kinds import is_whole
from needlepoint.studies.execution.executors import Finished
from needlepoint.studies.execution.work import solve

_CONNECT = 30.0  # seconds to wait for the scheduler to answer
_COUNT = 2.0  # seconds between two counts of the cluster's threads, because asking costs a round trip


class Dask:
    """Units as tasks of `dask.distributed`; `where` is an address, a cluster, a client, or None for a local cluster.

    >>> ndl.Dask.__name__  # ndl.Dask(address="tcp://...") connects to a running scheduler
    'Dask'
    """

    name = "dask"

    def __init__(self, where: Any = None, *, workers: int | None = None):
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise InvalidParameter(
                "the dask executor needs dask.distributed: pip install 'needlepoint[dask]'."
            ) from None
        if workers is not None and (not is_whole(workers) or workers < 1):
            raise InvalidParameter(f"Dask(workers={shown(workers)}): workers must be a whole number >= 1.")
        if where is not None and workers is not None:
            raise InvalidParameter(f"Dask(workers={workers!r}): a cluster that is there has its workers; leave it out.")
        self.where, self.workers = where, workers
        self._client: Any = None
        self._made: list[Any] = []  # client and cluster that were made here, and that `stop` therefore closes
        self._futures: dict[Any, int] = {}
        self._width, self._counted = 4, -_COUNT

    def start(self) -> None:
        from distributed import Client, LocalCluster

        if isinstance(self.where, Client):
            self._client = self.where
            return
        if self.where is None:
            cluster = LocalCluster(n_workers=self.workers, threads_per_worker=1, processes=True, dashboard_address=":0")
            self._made.append(cluster)
        else:
            cluster = self.where
        _listening(cluster)
        try:
            self._client = Client(cluster, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InvalidParameter(
                f"no dask scheduler answers at {cluster!r} ({type(error).__name__}); start one, or check the address."
            ) from None
        self._made.insert(0, self._client)

    @property
    def width(self) -> int:
        """Return two units per thread, so that no worker waits for its next one; at least 4, as a cluster may have no
        threads yet."""
        if time.monotonic() - self._counted > _COUNT:
            self._counted, self._width = time.monotonic(), max(4, 2 * sum(self._client.nthreads().values()))
        return self._width

    def submit(self, number: int, unit: dict[str, Any]) -> None:
        self._futures[self._client.submit(solve, unit, pure=False)] = number

    def wait(self, timeout: float) -> list[Finished]:
        from distributed import wait

        if not self._futures:
            time.sleep(timeout)
        else:
            with contextlib.suppress(TimeoutError), self._client.as_current():
                wait(list(self._futures), timeout=timeout, return_when="FIRST_COMPLETED")
        finished: list[Finished] = []
        for future in [f for f in self._futures if f.done()]:
            number = self._futures.pop(future)
            if future.status == "finished":
                finished.append((number, future.result()))
            elif future.status != "error":
                raise NeedlepointError(
                    "the dask scheduler is gone; what is done is kept. Start it again, and run the same study again."
                )
            else:
                finished.append((number, _reason(future.exception())))
            future.release()
        return finished

    def stop(self) -> None:
        if self._futures:
            with contextlib.suppress(Exception):  # if the scheduler is gone there is nothing left to cancel
                self._client.cancel(list(self._futures), force=True)
            self._futures.clear()
        for made in self._made:
            with contextlib.suppress(Exception):
                made.close()
        self._made.clear()


def _listening(cluster: Any) -> None:
    """Raise InvalidParameter for an address at which nothing answers, before a dask client begins to wait for it."""
    if not isinstance(cluster, str):
        return
    try:
        place = urllib.parse.urlsplit(cluster if "//" in cluster else f"tcp://{cluster}")
        if place.scheme in ("tcp", "tls"):
            socket.create_connection((place.hostname or "", place.port or 8786), _CONNECT).close()
    except (OSError, ValueError) as error:
        raise InvalidParameter(
            f"no dask scheduler answers at {cluster!r} ({type(error).__name__}); start one, or check the address."
        ) from None


def _reason(error: BaseException) -> str:
    killed = type(error).__name__ == "KilledWorker"
    return "its worker died several times; it may need more memory." if killed else one_line(error)
