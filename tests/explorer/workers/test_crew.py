"""Workers of the explorer: warm ones are used again, those that are left or too large are killed."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from needlepoint.explorer.limits import Limits
from needlepoint.explorer.settings import Settings
from needlepoint.explorer.workers.crew import Busy, Crew

from waiting import until

LONG = {
    "kind": "train",
    "task": "SpikedSLR(tokens=2, snr=2.0, noise=0.3)",
    "model": "KeyValueAttention(Linear())",
    "learner": "Ridge(alpha=4, lam=0.5)",
    "d": 1000,
    "repeats": 256,
}


def alive(pid):
    """Whether a process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def events(crew, document):
    return [event async for event in crew.answer(document)]


async def patiently(coroutine):
    """A task whose end is waited for while its processes make progress."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.get_running_loop().run_in_executor(None, until, task.done, "the crew")
    return await task


def run(coroutine):
    return asyncio.run(patiently(coroutine))


def test_a_warm_worker_answers_again_and_ends_with_the_crew():
    async def story():
        crew = Crew(Settings(limits=Limits(workers=1)))
        first, second = [await events(crew, {"kind": "hello"}) for _ in range(2)]
        await crew.close()
        return first, second

    first, second = run(story())
    assert [event["event"] for event in first] == ["started", "own", "done"]
    assert first[0]["worker"] == second[0]["worker"]
    until(lambda: not alive(first[0]["worker"]), "the end of the worker")


def test_whoever_leaves_stops_the_work_and_a_spare_takes_over():
    async def story():
        crew = Crew(Settings(limits=Limits(workers=1)))
        async with contextlib.aclosing(crew.answer(LONG)) as answer:
            started = await anext(answer)
            assert (await anext(answer))["event"] == "prediction"
            assert alive(started["worker"])
        after = await events(crew, {"kind": "hello"})
        await crew.close()
        return started["worker"], after

    gone, after = run(story())
    until(lambda: not alive(gone), "the end of the worker")
    assert after[0]["worker"] != gone
    assert after[-1] == {"event": "done"}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory of a process is read from /proc")
def test_too_much_memory_or_time_ends_an_answer_with_a_sentence():
    async def story(limits):
        crew = Crew(Settings(limits=limits))
        found = await events(crew, LONG)
        await crew.close()
        return found

    memory = run(story(Limits(workers=1, memory=10_000_000)))
    assert memory[-1]["event"] == "refused"
    assert "10 MB" in memory[-1]["sentence"]
    until(lambda: not alive(memory[0]["worker"]), "the end of the worker")
    late = run(story(Limits(workers=1, seconds=0.0)))
    assert "0 s" in late[-1]["sentence"]


def test_a_full_queue_refuses_at_once():
    async def story():
        crew = Crew(Settings(limits=Limits(workers=1, queue=1)))
        running = [asyncio.ensure_future(events(crew, {"kind": "hello"})) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await events(crew, {"kind": "hello"})
        found = await asyncio.gather(*running)
        await crew.close()
        return found

    assert [answer[-1]["event"] for answer in run(story())] == ["done", "done"]


def test_refusals_of_a_worker_are_one_sentence(tmp_path):
    broken = tmp_path / "broken_theory.py"
    broken.write_text("raise RuntimeError('no')")

    async def story():
        crew, other = Crew(Settings()), Crew(Settings(theory=broken))
        task = "AttentionIndexed(2, Wishart(0.5), noise_var=0.5)"
        found = await events(crew, {"kind": "predict", "task": task, "model": "None", "learner": "Population()"})
        await crew.close()
        worse = await events(other, {"kind": "hello"})
        await other.close()
        return found, worse

    found, worse = run(story())
    assert found[-1]["event"] == "refused"
    assert found[-1]["sentence"].startswith("no rule for predict(AttentionIndexed")
    assert worse[-1]["event"] == "refused"
    assert "broken_theory.py: running the file failed: RuntimeError: no" in worse[-1]["sentence"]


def test_a_worker_ends_when_its_server_is_gone():
    """The server is killed without a chance to say goodbye; its worker reads the end of its input."""
    import subprocess
    import sys

    code = """
import asyncio, os
from needlepoint.explorer.settings import Settings
from needlepoint.explorer.workers.handle import Worker
async def story():
    worker = await Worker.start(Settings())
    print(worker.pid, flush=True)
    await worker.process.stdout.readline()
    os._exit(1)
asyncio.run(story())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
    until(lambda: not alive(pid), "the end of the worker")
