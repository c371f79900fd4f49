import os

import pytest

from gradcheck_cli.cli.options.configured import default_paths


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[tool.gradcheck]\nspecs = "checks"\n', ("checks",)),
        ('[tool.gradcheck]\nspecs = ["a", "b/c.yaml"]\n', ("a", os.path.join("b", "c.yaml"))),  # noqa: PTH118
        ('[tool.other]\nspecs = "x"\n', ("specs",)),
        ('tool = "odd"\n', ("specs",)),
        ("", ("specs",)),
    ],
)
def test_the_projects_own_setting(tmp_path, text, expected):
    write(tmp_path, text)
    assert default_paths(tmp_path) == expected


def test_the_nearest_setting_upward_counts(tmp_path):
    write(tmp_path, '[tool.gradcheck]\nspecs = "far"\n')
    write(tmp_path / "a", "[project]\nname = 'no setting here'\n")
    assert default_paths(tmp_path / "a") == (os.path.join("..", "far"),)  # noqa: PTH118
    write(tmp_path / "a", '[tool.gradcheck]\nspecs = "near"\n')
    assert default_paths(tmp_path / "a") == ("near",)
