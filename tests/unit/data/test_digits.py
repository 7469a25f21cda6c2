"""Tests that the PNG files hold the digits of scikit-learn with the same shades, in folders by class."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from data import digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    output = tmp_path_factory.mktemp("digits") / "digits"
    assert digits.main(["--output", str(output)]) == 0
    return output


def test_every_image_equals_its_digit(folder):
    real = load_digits()
    paths = sorted(folder.glob("*/*.png"), key=lambda path: path.stem)
    assert len(paths) == digits.COUNT == len(real.target)
    for index, path in enumerate(paths):
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "L", (8, 8))
            shades = np.rint(np.asarray(image) * (16 / 255))
        assert path.name == f"{index:04}.png"
        assert path.parent.name == str(real.target[index])
        np.testing.assert_array_equal(shades, real.images[index])


def test_output_only_has_a_folder_per_class(folder):
    assert sorted(path.name for path in folder.iterdir()) == [str(digit) for digit in range(10)]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_second_call_does_not_write_anything(folder, capsys):
    inode = folder.stat().st_ino
    assert digits.main(["--output", str(folder)]) == 0
    assert folder.stat().st_ino == inode
    assert "nothing to do" in capsys.readouterr().out


def test_empty_folder_is_filled(tmp_path):
    assert digits.main(["--output", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("[0-9]/*.png"))) == digits.COUNT


def test_folder_with_other_files_is_not_changed(tmp_path, capsys):
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "holiday.png").write_text("precious")
    assert digits.main(["--output", str(tmp_path)]) == 2
    assert "received 1 digits or other files" in (output := capsys.readouterr().err)
    assert "remedy: delete it, or choose another folder" in output
    assert (tmp_path / "3" / "holiday.png").read_text() == "precious"
