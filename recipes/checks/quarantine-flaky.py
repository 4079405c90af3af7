"""Which Python tests both passed and failed in JUnit reports, and whether exactly those are taken out of the suite.

Arguments: the directory of the reports, and the word that the reason of each skip begins with. Ends with 0 when every flaky test is
skipped and nothing else was changed; otherwise prints what is wrong and ends with 1.
"""
import ast, pathlib, subprocess, sys
import xml.etree.ElementTree as tree

reports, reason = sys.argv[1:]
passed, failed = set(), set()
for report in sorted(pathlib.Path(reports).rglob("*.xml")):
    for case in tree.parse(report).iter("testcase"):
        name = (*case.get("classname", "").split("."), case.get("name", "").split("[")[0])
        if case.find("skipped") is None:
            (passed if case.find("failure") is None and case.find("error") is None else failed).add(name)
flaky = passed & failed
if not passed and not failed:
    sys.exit(f"{reports} has no JUnit report with a test that ran")

def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout

def functions(path, module):
    """Each function of a file that a report may name, with the end of the name that it has there."""
    stem = path.stem
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (stem, node.name), node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield (stem, node.name, inner.name), inner

def skips(decorator):
    """Whether a decorator skips a test always, for a reason that begins with the wanted word."""
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) not in ("unittest.skip", "pytest.mark.skip"):
        return False
    values = decorator.args + [one.value for one in decorator.keywords if one.arg == "reason"]
    return len(values) == 1 and isinstance(values[0], ast.Constant) and str(values[0].value).startswith(reason + ": ") and len(str(values[0].value).split()) > 2

def stripped(path, text):
    """What a file does without the skips of flaky tests and without imports of test frameworks."""
    module = ast.parse(text)
    for name, node in functions(path, module):
        if any(full[-len(name):] == name for full in flaky):
            node.decorator_list = [one for one in node.decorator_list if not skips(one)]
    frameworks = ("import unittest", "import pytest")
    module.body = [one for one in module.body if ast.unparse(one) not in frameworks]
    return ast.dump(module)

def comments(text):
    return [line.strip() for line in text.split("\n") if line.strip().startswith("#")]

wrong, found = [], set()
for name in git("ls-files", "-z", "--", "*.py").split("\0")[:-1]:
    path = pathlib.Path(name)
    if not path.is_file():
        wrong.append(f"{name} was removed")
        continue
    before, now = git("show", f"HEAD:./{name}"), path.read_text()
    for end, node in functions(path, ast.parse(now)):
        full = [one for one in flaky if one[-len(end):] == end]
        found.update(full)
        if full and not any(map(skips, node.decorator_list)):
            wrong.append(f"{name}:{node.lineno}: {'.'.join(full[0])} is flaky and in the suite")
    if now != before and (stripped(path, now) != stripped(path, before) or comments(now) != comments(before)):
        wrong.append(f"{name}: more was changed than the decorators of flaky tests")
wrong += [f"{'.'.join(one)} is flaky and not found in a Python file" for one in sorted(flaky - found)]
added = git("ls-files", "--others", "--exclude-standard", "--", "*.py")
if added:
    wrong.append("these files were added:\n" + added)
sys.exit("\n".join(wrong) or 0)
