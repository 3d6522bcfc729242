"""tidy.py finds what it is there to find."""

import pathlib
import tempfile
import unittest

import tidy

CMAKE = "ferry_library(x ok.cpp)\n"


def violations(path, text, **others):
    files = {path: text, "runtime/base/check.h": "#pragma once\n", "CMakeLists.txt": "check ok_test ok bad"}
    files["tests/use.cpp"] = "".join(f'#include "{name}"\n' for name in [*files, *others] if name.endswith(".h"))
    files["CMakeLists.txt"] += " use"
    with tempfile.TemporaryDirectory() as root:
        return tidy.Tree(pathlib.Path(root), files | others).check()


class TidyTest(unittest.TestCase):
    def expect(self, part, path, text, **others):
        found = violations(path, text, **others)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def test_clean_code_passes(self):
        text = '// new in a comment, delete too\nconst char* s = "new TODOs";\nstruct A { A(const A&) = delete; };\n'
        self.assertEqual(violations("kernels/ok.cpp", '#include "runtime/base/check.h"\n#include <new>\n' + text), [])

    def test_sizes(self):
        self.expect("801 lines", "kernels/ok.cpp", "\n" * 801)
        self.expect("a comment of 129 columns", "kernels/ok.cpp", "// " + "x" * 126 + "\n")
        self.expect("function f has 71 lines", "kernels/ok.cpp", "namespace ferry {\nvoid f(int a = g({1})) {\n" + "  ;\n" * 69 + "}\n}\n")
        self.assertEqual(violations("kernels/ok.cpp", "namespace ferry {\nvoid f() {\n" + "  ;\n" * 68 + "}\n}\n"), [])
        self.assertEqual(violations("kernels/ok.cpp", "class A {\n" + "  int f() { return 1; }\n" * 90 + "};\n"), [])
        self.expect("function A has 72", "kernels/ok.cpp", "A::A(int b) : b_{b}, c_(b) {\n" + "  if (b) { }\n" * 70 + "}\n")

    def test_one_definition(self):
        header = {"comm/group.h": "#pragma once\nnamespace ferry {\nclass A final : public B {\n};\n}  // namespace ferry\n"}
        self.expect("ferry::A is another type in", "comm/ok.cpp", "namespace ferry {\nstruct A {\n};\n}  // namespace ferry\n", **header)
        for other in ["namespace {\nstruct A {\n};\n}  // namespace\n", "struct A;\n", "class A::B {\n};\n", "struct B {\n  struct A {\n  };\n};\n"]:
            self.assertEqual(violations("comm/ok.cpp", "namespace ferry {\n" + other + "}  // namespace ferry\n", **header), [])

    def test_arrows(self):
        header = {"comm/group.h": "#pragma once\n"}
        self.expect("kernels must not include comm", "kernels/ok.cpp", '#include "comm/group.h"\n', **header)
        self.expect("runtime/model must not include comm", "runtime/model/ok.cpp", '#include "comm/group.h"\n', **header)
        self.assertEqual(violations("moe/ok.cpp", '#include "comm/group.h"\n', **header), [])
        self.expect("runtime/base must not include kernels", "runtime/base/ok.cpp", '#include "kernels/a.h"\n', **{"kernels/a.h": "#pragma once\n"})
        self.expect("not a path from the root", "comm/ok.cpp", '#include "check.h"\n')

    def test_quarantine(self):
        for header, home in [("mpi.h", "comm/mpi"), ("gloo/context.h", "comm/gloo"), ("dnnl.hpp", "kernels/onednn"), ("grpcpp/grpcpp.h", "runtime/server")]:
            self.expect(header, "moe/ok.cpp", f"#include <{header}>\n")
            self.assertEqual(violations(f"{home}/ok.cpp", f"#include <{header}>\n"), [])
        self.expect("pb.h", "runtime/ok.cpp", '#include <ferry/v1/inference.pb.h>\n')

    def test_words(self):
        self.expect("raw new", "moe/ok.cpp", "auto p = new int;\n")
        self.expect("raw delete", "moe/ok.cpp", "void f(int* p) { delete p; }\n")
        self.expect("using namespace", "moe/ok.cpp", "using namespace std;\n")
        self.expect("endl", "moe/ok.cpp", "void f() { std::cout << std::endl; }\n")
        self.expect("runtime/base/json.h", "moe/ok.cpp", "auto x = nlohmann::json::parse(text);\n")
        self.assertEqual(violations("tests/ok.cpp", "auto x = json::parse(text);\n"), [])
        self.expect("getenv", "moe/ok.cpp", 'auto x = std::getenv("A");\n')
        self.assertEqual(violations("comm/mpi/ok.cpp", 'auto x = std::getenv("A");\n'), [])
        self.expect("TO" "DO", "moe/ok.cpp", "// TO" "DO: more\n")
        self.expect("pragma once", "moe/ok.h", "int a;\n")

    def test_dead_files(self):
        self.expect("no CMakeLists.txt names", "moe/dead.cpp", "\n")
        files = {"moe/dead.h": "#pragma once\n"}
        self.assertIn("no file includes", tidy.Tree(pathlib.Path("/nowhere"), files).check()[0])


if __name__ == "__main__":
    unittest.main()
