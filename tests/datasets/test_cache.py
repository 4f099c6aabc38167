"""Where files are looked for, what is refused, and what the messages say."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from pt_convsearch.datasets import File, Source, home, is_offline
from pt_convsearch.datasets.archives import members, unpack, unpack_all
from pt_convsearch.datasets.cache import find, obtain, readable_size

TEXT = b"1 0 a 1\n1 0 b 0\n"
DIGEST = hashlib.sha256(TEXT).hexdigest()


def source(**options) -> Source:
    file = File("qrels", "2020/qrels.txt", **{"url": "http://x.invalid/qrels.txt", **options})
    files = (file, File("pack", "pack.zip", url="http://x.invalid/pack.zip"), File("inside", "in.json", archive="pack"))
    return Source("toy", "Toy", "http://x.invalid", "CC0", "nobody", files)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("CONVSEARCH_HOME", str(tmp_path / "home"))


def put(path: Path, raw: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def get(found: Source, key: str = "qrels", **options) -> Path:
    return obtain(found, found.file(key), name="toy", **{"offline": True, **options})


def test_the_environment_moves_the_cache(tmp_path, monkeypatch):
    assert home() == tmp_path / "home"
    monkeypatch.delenv("CONVSEARCH_HOME")
    monkeypatch.setenv("PYTERRIER_HOME", str(tmp_path / "terrier"))
    assert home() == tmp_path / "terrier" / "convsearch"


@pytest.mark.parametrize(
    ("convsearch", "hub", "offline"),
    [
        ("1", None, True),
        ("0", "1", False),
        (None, "1", True),
        (None, "0", False),
        (None, None, False),
        ("true", "0", True),
    ],
)
def test_the_environment_forbids_the_network(monkeypatch, convsearch, hub, offline):
    for name, value in (("CONVSEARCH_OFFLINE", convsearch), ("HF_HUB_OFFLINE", hub)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert is_offline() is offline


@pytest.mark.parametrize("name", ["2020/qrels.txt", "qrels.txt", "qrels.txt.gz", "2020/qrels.txt.gz"])
def test_found_in_the_cache(tmp_path, name):
    raw = gzip.compress(TEXT) if name.endswith(".gz") else TEXT
    place = put(home() / "toy" / name, raw)
    assert get(source(size=len(TEXT), sha256=DIGEST)) == place


@pytest.mark.parametrize("name", ["2020/qrels.txt", "qrels.txt", "clone/data/2020/qrels.txt", "deep/er/qrels.txt.gz"])
def test_found_in_or_below_the_folder_that_is_given(tmp_path, name):
    raw = gzip.compress(TEXT) if name.endswith(".gz") else TEXT
    place = put(tmp_path / "mine" / name, raw)
    assert get(source(sha256=DIGEST), path=tmp_path / "mine") == place


def test_a_clone_with_several_of_that_name(tmp_path):
    right = put(tmp_path / "mine" / "repo" / "2020" / "qrels.txt", TEXT)
    put(tmp_path / "mine" / "repo" / "2019" / "qrels.txt", b"other")
    assert find(source(), source().file("qrels"), tmp_path / "mine") == right
    put(tmp_path / "mine" / "again" / "2020" / "qrels.txt", b"third")
    with pytest.raises(ValueError, match=r"several different files called 'qrels.txt'"):
        find(source(), source().file("qrels"), tmp_path / "mine")


def test_of_several_the_one_with_the_known_checksum(tmp_path):
    for folder, raw in (("a", b"other"), ("b", TEXT), ("c", b"third")):
        put(tmp_path / "mine" / folder / "qrels.txt", raw)
    assert get(source(sha256=DIGEST), path=tmp_path / "mine") == tmp_path / "mine" / "b" / "qrels.txt"


def test_no_connection_is_told_with_the_ways_around_it(monkeypatch):
    from pt_convsearch.datasets import cache

    def fail(url, target, **options):
        raise ConnectionError(f"{url}: no answer")

    monkeypatch.setattr(cache, "download", fail)
    with pytest.raises(
        ConnectionError, match=r"no answer\. convsearch:toy needs the file '2020/qrels\.txt'.*path=FOLDER"
    ):
        get(source(), offline=False)


def test_what_is_missing_is_said_with_where_and_how(tmp_path):
    with pytest.raises(FileNotFoundError) as told:
        get(source())
    for part in (
        "'2020/qrels.txt'",
        str(home() / "toy"),
        "http://x.invalid/qrels.txt",
        "offline",
        "path=",
        "CONVSEARCH_HOME",
    ):
        assert part in str(told.value)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileNotFoundError, match=r"path= is given, so nothing is fetched"):
        get(source(), path=tmp_path / "mine", offline=False)
    with pytest.raises(FileNotFoundError, match=r"write to the track\."):
        get(source(url=None, how="You write to the track."), offline=False)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        get(source(), given=tmp_path / "nothing")


@pytest.mark.parametrize(
    "raw",
    [
        TEXT,
        TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT.replace(b"\n", b"\r\n")),
    ],
    ids=["as published", "crlf", "bom", "gzip", "gzip crlf"],
)
@pytest.mark.parametrize("known", [{"size": len(TEXT)}, {"sha256": DIGEST}, {"size": len(TEXT), "sha256": DIGEST}])
def test_the_same_text_in_another_dress_is_the_file(tmp_path, raw, known):
    assert get(source(**known), given=put(tmp_path / "x", raw))


def test_published_with_windows_line_ends_and_held_without(tmp_path):
    dos = TEXT.replace(b"\n", b"\r\n")
    assert get(source(size=len(dos), sha256=hashlib.sha256(dos).hexdigest()), given=put(tmp_path / "x", TEXT))


@pytest.mark.parametrize(
    "raw",
    [TEXT[:-3], TEXT + b"1 0 c 1\n", TEXT.replace(b"a", b"b"), gzip.compress(TEXT)[:-9], b"<html>"],
    ids=["cut", "longer", "altered", "cut gzip", "foreign"],
)
def test_another_text_is_refused_unless_wanted(tmp_path, raw):
    place = put(tmp_path / "qrels.txt", raw)
    with pytest.raises(ValueError, match=r"qrels\.txt .* is not the file that was published .*verify=False"):
        get(source(size=len(TEXT), sha256=DIGEST), given=place)
    assert get(source(size=len(TEXT), sha256=DIGEST), given=place, verify=False) == place


def test_an_empty_file_is_never_right(tmp_path):
    with pytest.raises(ValueError, match="empty"):
        get(source(), given=put(tmp_path / "x", b""), verify=False)


def test_a_pointer_of_git_lfs_is_not_the_file(tmp_path):
    place = put(tmp_path / "x", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        get(source(), given=place, verify=False)


@pytest.mark.parametrize("name", ["blocks.txt.gz", "blocks.txt"])
def test_a_file_published_compressed_and_unpacked_since(tmp_path, name):
    found = Source("toy", "Toy", "", "", "", (File("blocks", "blocks.txt.gz", url="http://x.invalid/blocks.txt.gz"),))
    place = put(home() / "toy" / name, b"x")
    assert get(found, "blocks") == place
    assert get(found, "blocks", path=home() / "toy") == place


def test_a_file_that_was_cut_after_it_was_fetched(monkeypatch):
    from pt_convsearch.datasets import cache

    monkeypatch.setattr(cache, "download", lambda url, target, **options: put(target, TEXT))
    place = get(source(), offline=False)
    assert get(source()) == place
    place.write_bytes(TEXT[:8])
    with pytest.raises(ValueError, match=r"has 8 bytes, and 16 were fetched"):
        get(source())
    assert get(source(), verify=False) == place


def test_large_files_with_line_ends_across_blocks(tmp_path):
    text = b"x" * ((1 << 20) - 1) + b"\n" + b"y" * 100 + b"\n"
    dos = text.replace(b"\n", b"\r\n")  # the first \r is the last byte of the first block
    assert get(source(sha256=hashlib.sha256(text).hexdigest()), given=put(tmp_path / "x", dos))


def test_a_member_of_an_archive_that_is_given(tmp_path):
    (tmp_path / "mine").mkdir()
    with zipfile.ZipFile(tmp_path / "mine" / "pack.zip", "w") as archive:
        archive.writestr("Release/in.json", "[1]")
    place = get(source(), "inside", path=tmp_path / "mine")
    assert place.read_bytes() == b"[1]"
    assert home() in place.parents
    assert sorted(one.name for one in (tmp_path / "mine").iterdir()) == ["pack.zip"]
    assert get(source(), "inside", path=tmp_path / "mine") == place


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:\\evil", "..\\evil", "\\\\host\\evil"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_path_that_leads_out_is_refused(tmp_path, name, kind):
    place = tmp_path / "in" / f"x.{kind}"
    place.parent.mkdir()
    if kind == "zip":
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr(zipfile.ZipInfo("placeholder"), b"")
            archive.filelist[0].filename = name
    else:
        with tarfile.open(place, "w") as tar:
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="leads out of the archive"):
        unpack_all(place, tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in"]


def test_links_and_devices_are_not_followed(tmp_path):
    place = tmp_path / "x.tar.gz"
    with tarfile.open(place, "w:gz") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(ValueError, match="link or a device"):
        list(members(place))


def test_unpacking_all_and_one(tmp_path):
    place = tmp_path / "x.tar.gz"
    with tarfile.open(place, "w:gz") as tar:
        for name in ("a/1.jsonl", "b/2.jsonl"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(name[:3].encode()))
    assert [name for name, _ in members(place)] == ["a/1.jsonl", "b/2.jsonl"]
    assert (unpack_all(place, tmp_path / "out") / "b" / "2.jsonl").read_bytes() == b"b/2"
    assert unpack(place, tmp_path / "one", member="1.jsonl").read_bytes() == b"a/1"
    with pytest.raises(ValueError, match="no member is called"):
        unpack(place, tmp_path / "none", member="3.jsonl")
    cut = put(tmp_path / "cut.tar.gz", place.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"cut\.tar\.gz.*cut or damaged"):
        unpack_all(cut, tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_sizes_for_people():
    assert [readable_size(size) for size in (None, 999, 1500, 5_086_902_800)] == ["?", "999 B", "1.5 kB", "5.1 GB"]
