"""A store that is opened to read: nothing is written, and nothing is left beside the file."""

from needlepoint.studies.storage.store import Store


def test_reading_leaves_nothing_beside_the_file(tmp_path):
    """sqlite makes a log and shared memory even to read, which only a connection that may write can remove."""
    path = tmp_path / "a.sqlite"
    Store(path).close()
    before = path.read_bytes()
    with Store(path, create=False, readonly=True), Store(path, create=False, readonly=True):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]
    assert path.read_bytes() == before


def test_reading_leaves_the_log_of_a_writer_alone(tmp_path):
    path = tmp_path / "a.sqlite"
    with Store(path) as store:
        with Store(path, create=False, readonly=True):
            pass
        with store._writing():
            store._put_meta("a", "1")
        with Store(path, create=False, readonly=True) as reader:
            assert reader._one("SELECT value FROM meta WHERE key = 'a'") == "1"
    assert [p.name for p in tmp_path.iterdir()] == ["a.sqlite"]
