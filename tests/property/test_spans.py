"""One partition in the hands of several tasks: the files of a single task, whatever happens."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.determinism import deterministic
from tests.simulation.play import Play
from tests.simulation.process import Script
from tests.simulation.script import Shape

Files = dict[str, tuple[bytes, dict[str, str]]]


class Filled(Play):
    """A cluster with one partition, whose log has gaps, and sinks that run over it."""

    def files(self, records: int, gaps: int, scripts: list[Script]) -> Files:
        """What is in the bucket after the sinks: bodies and metadata by key."""
        with deterministic(Random("ids"), self.clock):
            self._fill(records, gaps)
            for at, script in enumerate(scripts):
                self.sink(self._process(Random(f"run {at}"), script))
            self._check(len(scripts))
        assert [] == self.violations
        held = self.bucket.objects
        return {
            key: (held[key].body, dict(held[key].head.metadata)) for key in self.bucket.data_keys()
        }

    def _fill(self, records: int, gaps: int) -> None:
        """Produce records; where a bit of *gaps* is set, aborted ones after them."""
        rng = Random("records")
        (where,) = self._wheres()
        for at in range(records):
            self.kafka.produce(where, self._rows(rng, where, 1))
            if gaps >> at & 1:
                self.kafka.abort(where, self._rows(rng, where, rng.randint(1, 9)))


@settings(max_examples=30, deadline=None)
@given(
    every=st.integers(1, 9), size=st.integers(1, 9), records=st.integers(1, 40),
    gaps=st.integers(0, 2**40), cores=st.integers(2, 5), hours=st.sampled_from([0, 0, 2]),
    dies=st.lists(st.integers(8, 90), max_size=3), workers=st.lists(st.integers(8, 60), max_size=2),
)  # fmt: skip
def test_any_number_of_tasks_makes_the_files_of_one(
    every: int, size: int, records: int, gaps: int, cores: int, hours: int,
    dies: list[int], workers: list[int],
) -> None:  # fmt: skip
    """
    Keys, bytes and metadata of all objects are those of one task that nothing happened to, however
    many tasks there are, and wherever they or the run die.
    """
    shape = Shape((("alpha", 1),), size, hours=hours, every=every)
    killed = [Script(dies_at=at, cores=cores) for at in dies]
    lamed = [Script(worker_dies_at=at, cores=cores) for at in workers]

    alone = Filled(shape).files(records, gaps, [Script(cores=1)])
    together = Filled(shape).files(records, gaps, [*killed, *lamed, Script(cores=cores)])

    assert alone == together
