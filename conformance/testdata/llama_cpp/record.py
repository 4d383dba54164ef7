#!/usr/bin/env python3
"""record.py LLAMA BUILD: what llama.cpp says of the demo model as GGUF files, into golden.json beside this script.

LLAMA is llama.cpp's source, BUILD its build folder. Recorded with the llama.cpp inside llama_cpp_python-0.3.36 (PyPI), AVX-512 VNNI.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

here, llama, build = Path(__file__).resolve().parent, Path(sys.argv[1]), Path(sys.argv[2])
PROMPTS = ["ROMEO:", "First Citizen:\nBefore we proceed any further,", "My lord, I do beseech you", "O, she doth teach the torches 1597!"]

with tempfile.TemporaryDirectory() as place:
    subprocess.run(["cargo", "run", "-q", "-p", "conformance", "--bin", "demo_gguf", place], check=True, cwd=here)
    includes = [f"-I{llama / part / 'include'}" for part in ("", "ggml")]
    libraries = [f"-L{build / 'bin'}", f"-Wl,-rpath,{build / 'bin'}", "-lllama", "-lggml", "-lggml-base"]
    subprocess.run(["g++", "-std=c++17", here / "greedy.cpp", *includes, *libraries, "-o", f"{place}/greedy"], check=True)
    golden = []
    for matrices in ("F16", "Q8_0", "Q4_0"):
        for prompt in PROMPTS:
            command = [f"{place}/greedy", f"{place}/demo-{matrices}.gguf", "100"]
            lines = subprocess.run(command, input=prompt, capture_output=True, text=True, check=True).stdout.splitlines()
            steps = [line.split() for line in lines[1:]]
            golden.append({"matrices": matrices, "prompt": prompt, "ids": [int(i) for i in lines[0].split()],
                           "tokens": [int(t) for t, _ in steps], "margins": [float(m) for _, m in steps]})
(here / "golden.json").write_text("[\n" + ",\n".join(json.dumps(entry) for entry in golden) + "\n]\n")
