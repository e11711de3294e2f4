# SPDX-License-Identifier: Apache-2.0
"""Field cases of pictures (docs/field-cases.md), as users of the program meet them; on a tiny random model that sees."""
import json
import pathlib
import socket
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from program import ROOT, ProgramTest, main  # noqa: E402

DATA = ROOT / "tests/data/vision"
MODEL = [DATA / "tiny-idefics3.gguf", "--mmproj", DATA / "mmproj-tiny-idefics3.gguf", "--ctx", "2048"]
PICTURES = ROOT / "tests/data/pictures"


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * 7 + y) % 256 for x in range(3 * width)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class FieldCases(ProgramTest):
    def file(self, name, content):
        path = self.home / name
        path.write_bytes(content)
        return path

    def ask(self, *arguments):
        """The JSON of a short answer."""
        return json.loads(self.expect(0, "run", *MODEL, "--json", "-n", "2", "--temp", "0", *arguments, "What is this?", stdin=None).stdout)

    def test_img_09_a_bad_picture_is_named_and_forgotten(self):
        good = PICTURES / "rgb8.png"
        broken = self.file("broken.jpg", (PICTURES / "420.jpg").read_bytes()[:300])
        empty = self.file("empty.png", b"")
        page = self.file("page.png", b"<!DOCTYPE html><html></html>")
        for path, words in ((broken, "ends too early"), (empty, "is empty"), (page, "web page"), (self.home / "none.png", "none.png")):
            done = self.run_program("run", *MODEL, "-i", good, "-i", path, "What?", stdin=None)
            self.assertIn(done.returncode, (1, 2))
            self.assertIn(path.name, done.stderr.decode())
            self.assertIn(words, done.stderr.decode())
            self.assertEqual(done.stdout, b"")
        talk = self.expect(0, "chat", *MODEL, "-n", "2", "--temp", "0",
                           stdin=f"/image {good}\nWhat?\n/image {broken}\nAnd?\n/save {self.home}/talk.json\n")
        self.assertIn("broken.jpg", talk.stderr.decode())
        self.assertEqual(len(json.loads((self.home / "talk.json").read_text())["messages"]), 4)

    def test_img_10_a_kind_that_is_not_read_is_named(self):
        photo = self.file("photo.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        message = self.expect(1, "run", *MODEL, "-i", photo, "What?", stdin=None).stderr.decode()
        self.assertIn("HEIC", message)
        self.assertIn("photo.jpg", message)

    def test_img_16_a_person_chooses_how_closely_pictures_are_looked_at(self):
        page = self.file("page.png", png(640, 480))
        tokens, tiles = [], []
        for flags in (["--image-tiles", "0"], ["--image-tiles", "6"], []):
            seen = self.ask(*flags, "-i", page)["pictures"][0]
            tokens.append(seen["tokens"])
            tiles.append(len(seen["tiles"]))
        self.assertEqual(tiles[0], 1)
        self.assertLessEqual(tiles[1], 7)
        self.assertLess(tiles[1], tiles[2])
        self.assertEqual([count * tokens[0] for count in tiles], tokens)
        self.assertIn(b"--image-tiles", self.expect(2, "run", *MODEL, "--image-tiles", "-1", "-i", page, "What?", stdin=None).stderr)
        talk = self.expect(0, "chat", *MODEL, "--image-tiles", "0", "--verbose", "-n", "1", stdin=f"/image {page}\nWhat?\n/stats\n")
        self.assertRegex(talk.stderr.decode(), r"prompt +(\d|\d\d) tokens")

    def test_img_19_the_places_of_tiles_are_told(self):
        page = self.file("page.png", png(100, 50))
        answer = self.ask("-i", page, "-i", PICTURES / "arrow6.png")
        self.assertEqual([(seen["width"], seen["height"]) for seen in answer["pictures"]], [(100, 50), (64, 32)])
        for seen in answer["pictures"]:
            whole = seen["tiles"][-1]
            self.assertEqual((whole["left"], whole["top"]), (0, 0))
            side = whole["scale_x"] * seen["width"]
            self.assertAlmostEqual(side, whole["scale_y"] * seen["height"])
            first = seen["tiles"][0]
            self.assertGreater(first["scale_x"], whole["scale_x"])
            # The tile to the right of the first begins where that ends.
            self.assertAlmostEqual(seen["tiles"][1]["left"], first["left"] + side / first["scale_x"])
        self.assertNotIn("pictures", self.ask())

    def test_img_22_an_address_is_refused_without_a_connection(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            for scheme in ("http", "https"):
                address = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/photo.png"
                message = self.expect(1, "run", *MODEL, "-i", address, "What?", stdin=None).stderr.decode()
                self.assertIn(f"{address} is an address", message)
                talk = self.expect(0, "chat", *MODEL, "-n", "2", stdin=f"/image {address}\nWhat?\n")
                self.assertIn("is an address", talk.stderr.decode())
                self.assertNotEqual(talk.stdout, b"")
            self.assertRaises(BlockingIOError, server.accept)


if __name__ == "__main__":
    main()
