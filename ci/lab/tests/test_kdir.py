# SPDX-License-Identifier: GPL-2.0
"""tools/kdir, with made-up kernel trees in the layouts of the distributions' packages (docs/kernels.md)."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from lab import TOP

RUSTC = "rustc 1.85.0 (4d91de4e4 2025-02-17) (built from a source tarball)"
OPTIONS = "CONFIG_64BIT=y CONFIG_RUST=y CONFIG_INFINIBAND_ADDR_TRANS=y CONFIG_SCSI_SRP_ATTRS=m".split()
# Debian 13's own kernel.
OWN = [*(o for o in OPTIONS if o != "CONFIG_RUST=y"), "CONFIG_X86_64=y"]
METADATA = "rust/libcore.rmeta rust/libkernel.rmeta rust/libmacros.so".split()
# What rust/Kbuild reads of the source.
SOURCE = sorted(
    {
        *re.findall(r"srp_probe,\w+,\$\((?:srp_crate|srctree)\)/([^,]+),", (TOP / "rust/Kbuild").read_text()),
        "rust/kernel/lib.rs",
    }
)
GENERATED = ["rust/bindings/bindings_generated.rs"]


class Kdir(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.kdir = TOP / "tools/kdir"
        self.program("rustc", f"echo '{RUSTC}'")
        self.program("rustfmt", ":")
        self.program("bindgen", ":")
        self.program("dpkg-query", "exit 1")

    def program(self, name, text):
        self.bin.mkdir(exist_ok=True)
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def tree(self, name, *files, release="7.3.4", options=OPTIONS, makefile="# the kernel's\n"):
        k = self.folder / name
        self.put(k, *files)
        self.put(k, "Makefile", text=makefile)
        rustc = f'CONFIG_RUSTC_VERSION_TEXT="{RUSTC}"'
        self.put(k, ".config", text="".join(f"{line}\n" for line in [*options, rustc]))
        self.put(k, "include/config/kernel.release", text=f"{release}\n")
        self.put(k, "Module.symvers")
        return k

    def put(self, folder, *files, text=None):
        for file in files:
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"\0{RUSTC}\0" if text is None else text)

    def run_it(self, *words, **env):
        # Only basic tools, so that there is no clang.
        tools = "bash sh sed grep sort head tail cat cut dirname basename readlink realpath sha256sum uname tar xz mkdir mv"
        tools += " rm find cp diff paste nproc make"
        for tool in tools.split():
            link = self.bin / tool
            if not link.exists():
                link.symlink_to(subprocess.check_output(["which", tool], text=True).strip())
        done = subprocess.run(
            words if words[0] == "bash" else ["bash", self.kdir, *words],
            env={"PATH": str(self.bin), "LC_ALL": "C", **env},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def refused(self, said, *words, **env):
        """kdir fails with one line, which contains `said`."""
        status, out = self.run_it(*words, **env)
        self.assertEqual((status, len(out.splitlines())), (1, 1), out)
        self.assertIn(said, out)
        return out

    def fits(self, k):
        self.assertEqual(self.run_it("check", k), (0, ""))

    # The layouts.

    def debian(self, **more):
        self.put(self.folder / "common", "Kbuild")
        k = self.tree("headers", ".kernelvariables", makefile=f"include {self.folder}/common/Makefile\n", **more)
        return k

    def ubuntu(self):
        k = self.tree("linux-headers", release="7.3.0-9-generic")
        self.put(k, "include/generated/utsrelease.h", text="#define UTS_UBUNTU_RELEASE_ABI 9\n")
        (k / "rust").symlink_to("../linux-lib-rust-7.3.0-9-generic/rust")
        return k

    def fedora(self):
        return self.tree(
            "kernels", "System.map", "rust/Makefile", "scripts/target.json", release="7.3.4-200.fc44.x86_64"
        )

    def arch(self):
        return self.tree("arch", "version", "localversion.10-pkgrel", "System.map", *METADATA, release="7.3.4-arch1-1")

    def test_the_layouts(self):
        layouts = {
            "tree": self.tree("source", *SOURCE),
            "Debian": self.debian(),
            "Ubuntu": self.ubuntu(),
            "Fedora": self.fedora(),
            "Arch": self.arch(),
            "other": self.tree("other"),
        }
        for name, k in layouts.items():
            self.assertEqual(self.run_it("layout", k), (0, f"{name}\n"))

    def test_a_source_tree(self):
        k = self.tree("linux-source-7.3", *SOURCE)
        self.refused("run `make modules_prepare` there", "check", k)
        self.put(k, *METADATA, *GENERATED)
        self.fits(k)
        (k / "Module.symvers").unlink()
        self.refused("lacks Module.symvers", "check", k)

    def test_a_build_folder(self):
        self.put(self.folder / "linux", *SOURCE)
        k = self.tree("build", *METADATA, *GENERATED, makefile=f"include {self.folder}/linux/Makefile\n")
        self.fits(k)
        # The source was elsewhere when the folder was made.
        self.put(k, "Makefile", text="include /nonexistent/Makefile\n")
        self.refused("not the source", "check", k)
        (k / "source").symlink_to("../linux")
        self.fits(k)

    def test_each_file_that_kbuild_reads(self):
        k = self.tree("linux", *SOURCE, *METADATA, *GENERATED)
        for file in {*SOURCE, *GENERATED} - {"rust/kernel/lib.rs"}:
            (k / file).rename(k / "away")
            self.refused(f"({file} is not there)", "check", k)
            (k / "away").rename(k / file)
        self.fits(k)

    def test_headers_without_metadata(self):
        for k in self.debian(), self.ubuntu(), self.fedora():
            self.refused("run `make kdir`", "check", k)

    def test_metadata_without_source(self):
        self.refused("has Rust metadata but not the source", "check", self.arch())
        k = self.ubuntu()
        self.put(self.folder / "linux-lib-rust-7.3.0-9-generic", *METADATA, *GENERATED)
        self.refused("has Rust metadata but not the source", "check", k)

    def test_which_source_is_needed(self):
        self.program("dpkg-query", 'case $* in *linux-headers-*) echo -n 7.3.4-1;; *) exit 1;; esac')
        can = lambda k, release: self.refused("", "can", release, k)
        self.assertIn("apt install linux-source-7.3=7.3.4-1", can(self.debian(), "7.3.4+deb13-amd64"))
        self.assertIn("apt install linux-source-7.3.0=7.3.4-1", can(self.ubuntu(), "7.3.0-9-generic"))
        self.program("dpkg-query", "exit 1")
        self.assertIn("`rpmbuild -bp`", can(self.fedora(), "7.3.4-200.fc44.x86_64"))
        self.assertIn("`makepkg -o`", can(self.arch(), "7.3.4-arch1-1"))
        k = self.arch()
        self.refused("SOURCE=/nonexistent is not there", "can", "7.3.4-arch1-1", k, SOURCE="/nonexistent")
        self.assertEqual(self.run_it("can", "7.3.4-arch1-1", k, SOURCE=str(self.folder)), (0, ""))

    # Kernel trees for which no module can be built.

    def test_what_a_refusal_says(self):
        """The whole sentences, of make and of dkms."""
        cloud = "was built without {}, which this module needs: Debian's cloud kernels lack it, those of "
        cloud += "linux-image-amd64 and linux-image-arm64 have it."
        without = lambda name: [o for o in OPTIONS if name not in o]
        for n, (release, option, rest) in enumerate(
            (
                ("7.3.4+deb13-cloud-amd64", "CONFIG_SCSI_SRP_ATTRS", cloud),
                ("7.3.4+deb13-cloud-arm64", "CONFIG_INFINIBAND_ADDR_TRANS", cloud),
                ("7.3.4+deb13-armmp", "CONFIG_64BIT", "is for 32 bit (no {}), and this module is for 64 bit only."),
            )
        ):
            k = self.tree(f"{n}", *SOURCE, *METADATA, *GENERATED, release=release, options=without(option))
            rest = rest.format(option)
            self.assertEqual(self.run_it("check", k), (1, f"The kernel of {k} {rest}\n"))
            self.assertEqual(self.run_it("can", release, k), (1, f"ib_srp: Linux {release} {rest}\n"))
        k = self.arch()
        self.assertEqual(
            self.run_it("check", k),
            (
                1,
                f"{k} has Rust metadata but not the source of its kernel ({min(SOURCE)} is not there), which this module "
                "needs: run `make kdir`, then `make` again.\n",
            ),
        )

    def test_each_option(self):
        for i, option in enumerate(o for o in OPTIONS if o != "CONFIG_RUST=y"):
            rest = [o for o in OPTIONS if o != option]
            name = option[: option.index("=")]
            for j, config in enumerate((rest, [*rest, f"# {name} is not set"], [*rest, f"{name}=n"])):
                k = self.tree(f"{i}{j}", *SOURCE, *METADATA, *GENERATED, options=config)
                self.refused(name, "check", k)
                out = self.refused(name, "can", "7.3.4+deb13-cloud-amd64", k)
                self.assertTrue(out.startswith("ib_srp: Linux 7.3.4+deb13-cloud-amd64 "), out)

    def test_an_old_kernel(self):
        k = self.tree("own", release="6.11.4", options=OWN)
        self.refused("Linux 6.11.4, and this module needs Linux 6.12 or newer", "check", k)
        for release, fits in (
            ("7.1.9-arch1-1", False),
            ("6.19.2", False),
            ("7.2.12+deb13-amd64", True),
            ("7.10.1", True),
        ):
            k = self.tree(release, *SOURCE, *METADATA, *GENERATED, release=release)
            if fits:
                self.fits(k)
            else:
                self.refused(f"Linux {release}, and this module needs Linux 7.2 or newer", "check", k)

    def test_a_kernel_of_clang(self):
        k = self.tree("clang", *SOURCE, *METADATA, *GENERATED, options=[*OPTIONS, "CONFIG_CC_IS_CLANG=y"])
        self.refused("apt install clang lld llvm", "check", k)
        for tool in "clang", "ld.lld", "llvm-nm":
            self.program(tool, ":")
        self.fits(k)
        make = ["make", "-n", "-s", "-C", TOP, f"KDIR={k}"]
        for more, flag in ([], "LLVM=1"), (["LLVM=-19"], None):
            said = subprocess.run([*make, *more], capture_output=True, text=True).stdout
            self.assertEqual("LLVM=1" in said, flag is not None, said)

    def installed(self, k):
        """Makes a tree that of the headers of every release."""
        self.program("readlink", f"echo {k}")

    def makes_metadata(self, disables="nothing"):
        """A make that tells how it is called, makes what a kernel's makes, and disables an option."""
        made = [*METADATA, *GENERATED, "include/config/kernel.release"]
        made = "".join(f"mkdir -p $2/{pathlib.Path(f).parent}; printf '\\0{RUSTC}\\0' >$2/{f}\n" for f in made)
        made = made.replace(f"\\0{RUSTC}\\0' >$2/include", "7.3.4' >$2/include")
        self.program("make", f'echo "make $*"\n[ "$1" != -C ] || {{ sed -i /{disables}/d $2/.config; {made}}}')

    def test_a_tool_that_the_kernel_had(self):
        self.put(self.folder / "linux", *SOURCE, "Makefile", "arch/x86/Makefile", "tools/Makefile")
        for option, wanted in ("CONFIG_COMPAT_VDSO", 0), ("CONFIG_PER_CPU", 1):
            self.makes_metadata(disables=option)
            self.installed(self.debian(options=[*OPTIONS, f"{option}=y"]))
            status, out = self.run_it("make", "7.3.4", self.folder / "made", SOURCE=str(self.folder / "linux"))
            self.assertEqual((status, "configuration is another one" in out), (wanted, bool(wanted)), out)

    def test_a_tree_for_a_kernel_of_clang(self):
        for tool in "clang", "ld.lld", "llvm-nm":
            self.program(tool, ":")
        self.put(self.folder / "linux", *SOURCE, "Makefile", "arch/x86/Makefile", "tools/Makefile")
        self.makes_metadata()
        for options, llvm in (OPTIONS, ""), ([*OPTIONS, "CONFIG_CC_IS_CLANG=y"], " LLVM=1"):
            self.installed(self.debian(options=options))
            to = self.folder / "made"
            status, out = self.run_it("make", "7.3.4", to, SOURCE=str(self.folder / "linux"))
            self.assertEqual(status, 0, out)
            ran = [line for line in out.splitlines() if line.startswith("make ")]
            start = f"make -C {to}.new{llvm} "
            self.assertEqual([line for line in ran if not line.startswith(start)], [])
            self.assertEqual([line[len(start) :].split()[0] for line in ran][0], "rustavailable")
            self.assertEqual(len(ran), 3)

    def test_a_tree_has_the_headers_of_its_architecture(self):
        machines = {"x86_64": "x86", "aarch64": "arm64", "ppc64le": "powerpc", "riscv64": "riscv", "s390x": "s390"}
        headers = {machine: f"arch/{folder}/include/asm/page.h" for machine, folder in machines.items()}
        self.put(self.folder / "linux", *SOURCE, *headers.values(), "Makefile", "tools/Makefile")
        self.makes_metadata()
        self.installed(self.debian())
        to = self.folder / "made"
        for machine, header in headers.items():
            self.program("uname", f"echo {machine}")
            status, out = self.run_it("make", "7.3.4", to, SOURCE=str(self.folder / "linux"))
            self.assertEqual(status, 0, out)
            self.assertEqual([str(f.relative_to(to)) for f in to.glob("arch/**/*.h")], [header])

    # dkms.

    def dkms(self, release, function="do_build"):
        """Reads dkms.conf as this function of dkms does. Returns what that prints, and the kernels that may be built."""
        text = f'{function}() {{ . {TOP}/dkms.conf; }}; kernelver={release}; {function} 2>&1; echo "/$BUILD_EXCLUSIVE_KERNEL"'
        status, out = self.run_it("bash", "-c", text)
        self.assertEqual(status, 0)
        return out

    def test_dkms_skips_a_kernel(self):
        self.installed(self.tree("cloud", options=OPTIONS[:-1]))
        for function in "do_build", "autoinstall":
            out = self.dkms("7.3.4+deb13-cloud-amd64", function)
            self.assertRegex(out, r"\Aib_srp: Linux 7.3.4\+deb13-cloud-amd64 .* CONFIG_SCSI_SRP_ATTRS, .*\n/\^\$\n\Z")
        # Other commands, as status, read the file, too.
        self.assertEqual(self.dkms("7.3.4+deb13-cloud-amd64", "do_status"), "/\n")
        self.installed(self.tree("linux", *SOURCE, *METADATA, *GENERATED))
        self.assertEqual(self.dkms("7.3.4+deb13-amd64"), "/\n")

    def test_dkms_itself_skips_the_same(self):
        text = (TOP / "dkms.conf").read_text()
        options = re.search(r'^BUILD_EXCLUSIVE_CONFIG="(.*)"$', text, re.M)[1].split()
        self.assertEqual({f"{o}=" for o in options}, {o[:-1] for o in OPTIONS if o != "CONFIG_RUST=y"})
        self.assertIn('\nBUILD_EXCLUSIVE_KERNEL_MIN="6.12"\n', text)
        # CONFIG_64BIT says it for each architecture.
        self.assertNotIn("BUILD_EXCLUSIVE_ARCH", text)

    def test_dkms_and_a_kernel_of_clang(self):
        for tool in "clang", "ld.lld", "llvm-nm":
            self.program(tool, ":")
        for options, llvm in (OPTIONS, ""), ([*OPTIONS, "CONFIG_CC_IS_CLANG=y"], "1"):
            rule = "modules:\n\techo 'LLVM is $(LLVM).'\n"
            k = self.tree("linux", *SOURCE, *METADATA, *GENERATED, options=options, makefile=rule)
            self.installed(k)
            # PRE_BUILD, only shown.
            self.assertIn(f"echo 'LLVM is {llvm}.'", self.run_it("build", "7.3.4", "-n", "-s")[1])
        # What dkms appends to MAKE is ignored.
        self.put(self.folder, "build/native/rust/ib_srp.ko")
        text = f'. {TOP}/dkms.conf; cd {self.folder}; eval "${{MAKE[0]}} LLVM=1"'
        self.program("ls", 'echo "$*"')
        self.assertEqual(self.run_it("bash", "-c", text), (0, "build/native/rust/ib_srp.ko\n"))

    def test_another_rustc(self):
        k = self.tree("linux", *SOURCE, *METADATA, *GENERATED)
        self.program("rustc", "echo 'rustc 1.93.0 (abc 2026-01-01)'")
        self.refused("this machine's compiler is rustc 1.93.0", "check", k)
        self.refused("this machine's is rustc 1.93.0", "can", "7.3.4", self.debian())

    # Kernels without Rust.

    def with_crate(self):
        """A project's folder with a kernel crate, which kdir is then of. Tools that fit it are there."""
        top = self.folder / "project"
        self.put(top, "crate/rust/kernel/lib.rs")
        self.put(self.folder, "sysroot/lib/rustlib/src/rust/library/core/src/lib.rs")
        for name in "tools/kdir", "dkms.conf":
            self.put(top, name, text=(TOP / name).read_text())
        self.kdir = top / "tools/kdir"
        said = f"echo '{RUSTC}'; echo 'LLVM version: 19.1.7'"
        self.program("rustc", f"case $* in *sysroot) echo {self.folder}/sysroot;; *) {said};; esac")
        self.program("clang", "echo 19.1.7")
        self.program("llvm-link", ":")
        return self.tree("own", release="6.12.117+deb13-amd64", options=OWN)

    def test_a_kernel_without_rust(self):
        k = self.with_crate()
        self.fits(k)
        release = "6.12.117+deb13-amd64"
        self.assertEqual(self.run_it("can", release, k), (0, ""))

        def lacks(said):
            self.refused(said, "check", k)
            self.refused(f"ib_srp: Linux {release} ", "can", release, k)
            self.refused(said, "can", release, k)

        self.program("clang", "echo 18.1.8")
        lacks("clang and llvm-link of rustc's LLVM, 19")
        self.program("clang", "echo 19.1.7")
        for tool, said in ("llvm-link", "apt install clang llvm"), ("bindgen", "apt install rustc rust-src"):
            (self.bin / tool).rename(self.bin / "away")
            lacks(said)
            (self.bin / "away").rename(self.bin / tool)
        core = self.folder / "sysroot/lib/rustlib/src/rust/library/core/src/lib.rs"
        core.unlink()
        lacks("apt install rustc rust-src")
        self.put(core.parent, core.name)
        (k / "Module.symvers").unlink()
        lacks("lacks Module.symvers")
        self.put(k, "Module.symvers")
        self.fits(k)
        (self.kdir.parent.parent / "crate/rust/kernel/lib.rs").unlink()
        lacks("the kernel crate of one that has it")

    def test_a_kernel_without_rust_of_another_architecture(self):
        self.with_crate()
        for name, option, said in (
            ("arm64", "ARM64", "apt install linux-image-arm64/trixie-backports linux-headers-arm64/trixie-backports"),
            ("ppc64el", "PPC64", "for ppc64el, so build one (docs/kernels.md)."),
            ("riscv64", "RISCV", "for riscv64, so build one, by clang (docs/kernels.md)."),
            ("s390x", "S390", "for s390x, so build one, without CONFIG_EXPOLINE (docs/kernels.md)."),
            ("loong64", "LOONGARCH", "build a kernel with it (docs/kernels.md)."),
        ):
            release = f"6.12.117+deb13-{name}"
            k = self.tree(name, release=release, options=[*OWN[:-1], f"CONFIG_{option}=y"])
            why = "was built without CONFIG_RUST=y, and only on x86-64 can this module do without: "
            for out in self.refused(why, "check", k), self.refused(f"ib_srp: Linux {release} {why}", "can", release, k):
                self.assertTrue(out.endswith(f"{said}\n"), out)

    def test_the_crate(self):
        text = (TOP / "tools/kdir").read_text()
        names = re.search(r'^crate_files="([^"]*)"', text, re.M)[1].split()
        listed = [f.rstrip("/") for f in (TOP / "rust/standalone/files").read_text().split()]
        names += [f"kernel/{name}" for name in listed]
        files = {"scripts/generate_rust_target.rs", *(f"rust/{name}" for name in names)}
        # A folder has a file.
        files = {f if "." in f.rpartition("/")[2] or f.endswith("_parameters") else f"{f}/x.rs" for f in files}
        source = self.folder / "linux-source-7.3"
        self.put(source, *files, "rust/Makefile", "rust/kernel/.gitignore", "kernel/fork.c", text="")
        subprocess.run(["tar", "-cJf", f"{source}.tar.xz", "-C", self.folder, source.name], check=True)
        for n, made_of in enumerate((source, f"{source}.tar.xz")):
            crate = self.folder / f"crate{n}"
            self.assertEqual(self.run_it("crate", made_of, crate), (0, ""))
            self.assertEqual({str(f.relative_to(crate)) for f in crate.rglob("*") if f.is_file()}, files)
        for file in "scripts/generate_rust_target.rs", "rust/kernel/lib.rs", "rust/syn":
            (source / file).rename(source / "away")
            self.refused(f"has no {file}, which", "crate", source, self.folder / "crate2")
            (source / "away").rename(source / file)
        self.assertFalse((self.folder / "crate2").exists())
        self.refused("SOURCE=/nonexistent is not there", "crate", "/nonexistent", self.folder / "crate2")
