"""A tiny course for the tests: an exercise that passes at once, one of code, one of questions."""

from pathlib import Path

BY_PRODUCT = "Another way, by product:\n\n```python\ndef twice(x):\n    return 2 * x\n```\n\n"
FILES = {
    "course.toml": 'title = "A tiny course"\n[[chapter]]\ntitle = "Begin"\nexercises = ["hello", "twice"]\n'
    '[[chapter]]\ntitle = "End"\nexercises = ["choose"]\n',
    "hello/start.py": '"""Look around.\n\nThis file is right as it is.\n"""\n\nready = "yes"\n',
    "hello/solution.py": 'ready = "yes"\n',
    "hello/exercise.py": '"""How the course works."""\nfrom regard.school.exercises import Question\n\n'
    'passes_unsolved = True\nparts = [Question("ready", right="yes", because={"no": "Say yes."})]\n',
    "hello/words.md": "# where\nHere.\n\n# why\nBecause.\n\n# almost\nIt is right already.\n\n# after\n\n"
    "That was a check.\n\nNext: write something.\n",
    "twice/start.py": '"""Double a number of things.\n\nExample: twice(x) of [1, 2] is [2, 4].\n"""\n\n\ndef '
    "twice(x):\n"
    "    result = ...\n    return result\n",
    "twice/solution.py": "def twice(x):\n    result = x + x\n    return result\n",
    "twice/exercise.py": '"""Double a tensor."""\nimport torch\nfrom regard.school.exercises import Function, Wrong\n'
    "\n\n"
    "def arguments(random):\n    return (torch.rand(5, 5, generator=random) + 1.5,)\n\n\n"
    'parts = [\n    Function(\n        "twice",\n        arguments,\n        right=lambda x: x + x,\n        wrong=[\n'
    '            Wrong("not doubled", "It returns x as it is.", lambda x: x, why="Nothing is added."),\n'
    '            Wrong("squared", "It returns x²; it is 2·x.", lambda x: x * x),\n'
    '            Wrong("no tensor method", "A tensor has no double_it.", raises="double_it"),\n'
    '        ],\n        picture="weights",\n    )\n]\n',
    "twice/words.md": "# where\nLine 8.\n\n# why\nA sum of equal parts.\n\n# almost\nUse + once, and x on both "
    f"sides.\n\n# after\n\n2·x = x + x.\n\n{BY_PRODUCT}"
    "Another way, by sum of list:\n\n```python\ndef twice(x):\n    return sum([x, x])\n```\n\nNext: a question.\n",
    "twice/wrong.txt": "Edits of solution.py.\n\n# not doubled\n\n@ same\n- x + x\n+ x\n\n"
    "# squared\n\n@ square\n- x + x\n+ x**2\n\n"
    "# no tensor method\n\n@ method\n+ def twice(x):\n+     return x.double_it()\n",
    "choose/start.py": '"""Choose.\n\nWhat does softmax make of a row? Write a, b or c.\n"""\n\n'
    "# a: its maximum  b: shares that add up to 1\n# c: zeros\nanswer = ...\n",
    "choose/solution.py": 'answer = "b"\n',
    "choose/exercise.py": '"""What a softmax makes."""\nfrom regard.school.exercises import Question\n\n'
    'parts = [Question("answer", right="b", because={"a": "The maximum is one number.", "c": "Zeros add up to 0."})]\n',
    "choose/words.md": "# where\nLine 8.\n\n# why\nThink of shares.\n\n# almost\nThey add up to something.\n\n"
    "# after\n\nRows sum to 1.\n\nNext: nothing, you are done.\n",
    "choose/wrong.txt": '# answer: a\n\n@ a\n- "b"\n+ "a"\n\n# answer: c\n\n@ c\n- "b"\n+ "c"\n\n'
    '# answer: another answer\n\n@ d\n- "b"\n+ "d"\n',
}


def write_course(folder: Path, changes: dict[str, str | None] | None = None) -> Path:
    """Write the course; changes replace or add files, by their paths (None leaves a file out)."""
    for path, text in (FILES | (changes or {})).items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    return folder
