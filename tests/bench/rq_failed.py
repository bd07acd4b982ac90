"""Fills rq's registry of failed jobs; runs in the environment that has rq, not in ours.

The jobs stand as rq's own worker leaves them: a hash of status `failed`, named in the registry.
"""

import sys
from importlib import import_module
from typing import Any

AT_ONCE = 1_000
TIME_TO_LIVE_S = 365 * 86_400


def main() -> None:
    """URL COUNT: so many failed jobs of the queue `default`."""
    url, count = sys.argv[1], int(sys.argv[2])
    rq: Any = import_module("rq")
    redis: Any = import_module("redis")
    registries: Any = import_module("rq.registry")
    connection = redis.Redis.from_url(url)
    queue = rq.Queue("default", connection=connection)
    registry = registries.FailedJobRegistry(queue=queue)
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        wanted = [
            rq.Queue.prepare_data(
                "builtins.print", args=(number, "x" * 200), job_id=f"j{number:07d}"
            )
            for number in numbers
        ]
        jobs = queue.enqueue_many(wanted)
        with connection.pipeline() as pipeline:
            for job in jobs:
                job.set_status(rq.job.JobStatus.FAILED, pipeline=pipeline)
                registry.add(job, ttl=TIME_TO_LIVE_S, pipeline=pipeline)
            pipeline.delete(queue.key)
            pipeline.execute()


if __name__ == "__main__":
    main()
