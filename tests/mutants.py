"""Do the tests notice? Changes one thing in the library at a time, and runs the tests that run it.

    python tests/mutants.py record ran.json             # once, by Python 3.12 or later
    python tests/mutants.py run ran.json --seed 0 --number 72 --jobs 2

`record` runs the tests and writes which of them ran which functions, with those of the fixtures
that they use, and how long each took. `run` draws places that a test runs, spread over the folders;
changes an operator, a constant, a comparison, a branch or a call there, in a copy of the tree; and
runs the tests of that function, the quickest first, until one fails. It prints who was noticed, by
folder, and the changes that nobody notices: either a test lacks, or the code is not needed.
"""

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import copy
import functools
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("keras_lm", "export")


# === Places that can be changed ===

OPERATORS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def changed(node):
    """Return `(what, new node)` for each way to change a node, most often none."""
    new = copy.copy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
        new.ops = [OPERATORS[type(node.ops[0])]()]
        yield "comparison", new
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OPERATORS:
        new.op = OPERATORS[type(node.op)]()
        yield "operator", new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield "operator", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield "constant", ast.Constant(node.value * 2 if node.value else 1)
    elif isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        if not isinstance(node.args[0], ast.Starred):
            yield "call", node.args[0]
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield "branch", ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call", ast.Constant(None)


def is_left_alone(node):
    """Whether nothing inside may change: messages of errors, annotations, texts."""
    return isinstance(node, (ast.Raise, ast.JoinedStr, ast.arguments, ast.Assert, ast.ImportFrom))


def places(path):
    """Return the changes that a file allows: a list of dicts, in order."""
    results, source = [], path.read_text()
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def visit(node, function, first_line):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}".lstrip(".")
            if isinstance(node, ast.FunctionDef):
                first_line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        for what, new in changed(node) if first_line else ():
            old = node.test if what == "branch" else node
            results.append(
                {
                    "file": str(path.relative_to(REPOSITORY)),
                    "function": function,
                    "first_line": first_line,
                    "line": old.lineno,
                    "what": what,
                    "start": starts[old.lineno - 1] + old.col_offset,
                    "end": starts[old.end_lineno - 1] + old.end_col_offset,
                    "old": ast.get_source_segment(source, old),
                    "new": f"({ast.unparse(ast.fix_missing_locations(new))})",
                }
            )
        for child in ast.iter_child_nodes(node):
            if not is_left_alone(child):
                visit(child, function, first_line)

    visit(ast.parse(source), "", None)
    numbers = collections.Counter()
    for place in results:  # by what stays if other parts of the file change
        key = (place["function"], place["what"], place["old"])
        numbers[key] += 1
        place["name"] = "|".join([place["file"], *key, str(numbers[key])])
    return results


def draw(seed, number, functions):
    """Return `number` places inside functions that a test runs, evenly from the folders.

    A place's rank depends on itself and the seed alone, so that a change elsewhere draws no others.
    """

    def rank(place):
        return hashlib.sha256(f"{seed}|{place['name']}".encode()).hexdigest()

    by_folder = collections.defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for place in places(path):
                if f"{place['file']}:{place['first_line']}" in functions:
                    by_folder[folder_of(place)].append(place)
    for results in by_folder.values():
        results.sort(key=rank)
    drawn, turn = [], 0
    while len(drawn) < number and any(len(results) > turn for results in by_folder.values()):
        # A large folder takes more turns.
        for _, results in sorted(by_folder.items()):
            if len(results) > turn and (turn < 2 or len(results) > 150 * turn):
                drawn.append(results[turn])
        turn += 1
    return drawn[:number]


def folder_of(place):
    parts = Path(place["file"]).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


# === Which test runs what: a plugin of pytest ===


class Recorder:
    """Writes which functions each test ran, those of its fixtures too, and for how long."""

    def __init__(self, path):
        self.path = path
        self.ran = collections.defaultdict(set)  # a test or fixture → functions
        self.uses = {}  # a test → its fixtures
        self.seconds = collections.Counter()
        self.stack = []
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "mutants")
        monitoring.register_callback(
            monitoring.COVERAGE_ID, monitoring.events.PY_START, self.on_start
        )
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)
        self.roots = tuple(str(REPOSITORY / folder) + os.sep for folder in FOLDERS)

    def on_start(self, code, offset):
        if self.stack and code.co_filename.startswith(self.roots):
            name = f"{Path(code.co_filename).relative_to(REPOSITORY)}:{code.co_firstlineno}"
            self.ran[self.stack[-1]].add(name)
        return sys.monitoring.DISABLE  # until the next `restart_events`

    @contextlib.contextmanager
    def within(self, name):
        self.stack.append(name)
        sys.monitoring.restart_events()
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start
            self.stack.pop()
            sys.monitoring.restart_events()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        with self.within(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        with self.within(fixture_name(fixturedef)):
            return (yield)

    def pytest_collection_modifyitems(self, items):
        for item in items:
            definitions = getattr(item, "_fixtureinfo", None)
            chains = definitions.name2fixturedefs.values() if definitions else ()
            self.uses[item.nodeid] = [fixture_name(each) for chain in chains for each in chain]

    def pytest_sessionfinish(self):
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
        tests = {}
        for name in self.uses.keys() & self.seconds.keys():
            ran = set().union(self.ran[name], *(self.ran[each] for each in self.uses[name]))
            tests[name] = {"seconds": round(self.seconds[name], 3), "functions": sorted(ran)}
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")
        if tests:
            Path(f"{self.path}{worker}").write_text(json.dumps(tests))


def fixture_name(definition):
    return f"{definition.baseid}::{definition.argname}"


class Selection:
    """Runs only some tests, in an order of their own, until they have taken a number of seconds."""

    def __init__(self, names, seconds):
        self.order = {name: place for place, name in enumerate(names)}
        self.left = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self):
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.left -= time.process_time() - start

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self):
        if self.left <= 0:
            pytest.skip("time is up")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])


def pytest_configure(config):
    if path := os.environ.get("MUTANTS_RECORD"):
        config.pluginmanager.register(Recorder(path))
    if path := os.environ.get("MUTANTS_SELECT"):
        config.pluginmanager.register(Selection(**json.loads(Path(path).read_text())))


# === Commands ===

# In a copy of the tree, before anything is imported: an editable install points to the original.
REDIRECT = """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith("__editable___keras_lm"):
        for package, path in module.MAPPING.items():
            module.MAPPING[package] = path.replace({old!r}, {new!r})
"""


def record(path, arguments):
    """Run the tests, and write the functions that each ran."""
    if sys.version_info < (3, 12):
        sys.exit("Recording needs Python 3.12 or later, whose sys.monitoring takes no time.")
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "MUTANTS_RECORD": f"{folder}/ran",
            "PYTHONPATH": str(REPOSITORY / "tests"),
        }
        command = [sys.executable, "-m", "pytest", "-p", "mutants", "-q", *arguments]
        subprocess.run(command, cwd=REPOSITORY, env=environment, check=False)
        tests = {}
        for file in Path(folder).glob("ran*"):
            tests |= json.loads(file.read_text())
    Path(path).write_text(json.dumps(tests))
    print(f"{len(tests)} tests ran {len(functions_of(tests))} functions: {path}")


def functions_of(tests):
    return set().union(*(test["functions"] for test in tests.values()))


class Copy:
    """A copy of the tracked files whose tests import the library from it."""

    def __init__(self, folder):
        self.root = Path(folder)
        listed = subprocess.check_output(["git", "ls-files"], cwd=REPOSITORY, text=True)
        for name in listed.splitlines():
            target = self.root / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (REPOSITORY / name).exists():
                shutil.copy2(REPOSITORY / name, target)
        site = self.root / "site"
        site.mkdir()
        redirect = REDIRECT.format(old=str(REPOSITORY), new=str(self.root / "tree"))
        (site / "sitecustomize.py").write_text(redirect)

    def run(self, place, names, seconds):
        """Return the test that notices a change within a number of seconds, or None."""
        file, select = self.root / "tree" / place["file"], self.root / "select.json"
        original = file.read_bytes()
        new = original[: place["start"]] + place["new"].encode() + original[place["end"] :]
        select.write_text(json.dumps({"names": names, "seconds": seconds}))
        environment = os.environ | {
            "MUTANTS_SELECT": str(select),
            "PYTHONPATH": os.pathsep.join([str(self.root / "site"), str(REPOSITORY / "tests")]),
            "TF_NUM_INTRAOP_THREADS": "1",
        }
        files = sorted({name.split("::")[0] for name in names})
        command = [sys.executable, "-m", "pytest", "-p", "mutants", "-x", "-q", "--tb=no", *files]
        command += ["-m", ""]  # slow and thorough tests, too, if they are among the names
        command += ["-p", "no:cacheprovider", "--no-header"]
        try:
            file.write_bytes(new)
            process = subprocess.Popen(
                command,
                cwd=self.root / "tree",
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=functools.partial(limit_seconds, 4 * seconds + 60),
            )
            output, _ = process.communicate()
        finally:
            file.write_bytes(original)
        if process.returncode == 0:
            return None
        if process.returncode == -signal.SIGXCPU:
            return "it does not end"
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:150] if failed else "\n".join(output.splitlines()[-3:])


def limit_seconds(seconds):
    """Stop this process after a number of processor seconds, however busy the machine is."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), resource.RLIM_INFINITY))


def tests_of(place, tests, budget):
    """Return the quickest tests that run a place's function, for a number of seconds in all."""
    function = f"{place['file']}:{place['first_line']}"
    results = [
        (test["seconds"], name) for name, test in tests.items() if function in test["functions"]
    ]
    names, total = [], 0.0
    for seconds, name in sorted(results):
        total += seconds
        if names and total > budget:
            break
        names.append(name)
    return names


def run(path, seed, number, jobs, budget, output):
    """Change places one at a time, and print who notices."""
    tests = json.loads(Path(path).read_text())
    drawn = draw(seed, number, functions_of(tests))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        free = [Copy(Path(folder) / str(job)) for job in range(jobs)]

        def measure(place):
            tree = free.pop()
            try:
                return place, tree.run(place, tests_of(place, tests, budget), budget)
            finally:
                free.append(tree)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for place, noticed in pool.map(measure, drawn):
                results.append(place | {"noticed": noticed})
                verdict = noticed or "NOBODY NOTICES"
                print(
                    f"{place['file']}:{place['line']} {place['what']}: {place['old']!r} → ", end=""
                )
                print(f"{place['new']!r}: {verdict}", flush=True)
    if output:
        Path(output).write_text(json.dumps(results, indent=1))
    folders = collections.defaultdict(list)
    for result in results:
        folders[folder_of(result)].append(bool(result["noticed"]))
    print("\nfolder: noticed of changed")
    for folder, noticed in sorted(folders.items()):
        print(f"  {folder}: {sum(noticed)} of {len(noticed)}")
    print(f"all: {sum(bool(r['noticed']) for r in results)} of {len(results)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write which tests run which functions")
    recording.add_argument("file")
    recording.add_argument("arguments", nargs="*", help="for pytest, after --")
    running = commands.add_parser("run", help="change places, and print who notices")
    running.add_argument("file", help="what `record` wrote")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--number", type=int, default=72, help="how many places")
    running.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    running.add_argument("--budget", type=float, default=60.0, help="seconds of tests a place")
    running.add_argument("--output", help="a JSON file for the results")
    options = vars(parser.parse_args())
    if options.pop("command") == "record":
        record(options["file"], options["arguments"])
    else:
        path = options.pop("file")
        run(path, **options)


if __name__ == "__main__":
    main()
