#!/usr/bin/env python3
"""The public API from Python, with generated stubs: what to copy.

    coordinator/python/make_stubs.sh build/python
    PYTHONPATH=build/python coordinator/python/example.py 127.0.0.1:50050

Every call has a deadline. A call that fails raises grpc.RpcError; what the service says about it is in `Failure`.
"""
import dataclasses
import json
import sys

import grpc
from arborist.v1 import coordinator_pb2 as pb
from arborist.v1 import coordinator_pb2_grpc, sequence_pb2
from google.rpc import error_details_pb2, status_pb2

PROMPT = "import os\nimport sys\n\n\ndef read_file(path):\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "size": {"type": "integer", "minimum": 0, "maximum": 9999},
        "hidden": {"type": "boolean"},
    },
    "required": ["name", "size", "hidden"],
    "additionalProperties": False,
}


def connect(address):
    """A stub; it may be shared by threads, and one is enough. Answers fit into messages of 16 MiB."""
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 16 << 20)])
    return coordinator_pb2_grpc.CoordinatorServiceStub(channel)


@dataclasses.dataclass
class Failure:
    """What an error of the service says."""
    code: grpc.StatusCode
    message: str
    reason: str = ""  # for programs, such as BAD_REQUEST or QUEUE_FULL: see proto/arborist/v1/coordinator.proto
    origin: str = ""  # coordinator, drafter or verifier; empty: the call never reached one
    fields: dict = dataclasses.field(default_factory=dict)  # field -> "field=value, expected ..."
    retry_seconds: float | None = None  # when to try again, if that makes sense


def failure_of(error):
    """Of a grpc.RpcError: details come as google.rpc.Status in the trailing metadata."""
    failure = Failure(error.code(), error.details())
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                failure.reason, failure.origin = info.reason, info.metadata["origin"]
            elif detail.Unpack(bad):
                failure.fields = {violation.field: violation.description for violation in bad.field_violations}
            elif detail.Unpack(retry):
                failure.retry_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    return failure


def generate(stub, request, timeout=60):
    """The whole text of one answer, and its end: reason, seed, counts, times."""
    text, final = "", None
    for response in stub.Generate(request, timeout=timeout):
        if response.HasField("chunk"):
            text += response.chunk.text
        else:
            final = response.final
    return text, final


def stream(stub, request, timeout=60):
    """Pieces of the text as they come; one never ends inside a character and never changes later."""
    for response in stub.Generate(request, timeout=timeout):
        if response.HasField("chunk") and response.chunk.text:
            yield response.chunk.text


def first_words(stub, request, count):
    """Cancels as soon as it has enough; the server stops at its next step. Returns the text and how the call ended."""
    call = stub.Generate(request, timeout=60)
    text = ""
    try:
        for response in call:
            text += response.chunk.text
            if len(text.split()) >= count:
                call.cancel()
                break
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.CANCELLED:
            raise
    return text, call.code()


def several(stub, request, count):
    """Texts of `count` answers to one prompt. They share the prompt's work, and each has a noise of its own."""
    texts = [""] * count
    several_request = pb.GenerateRequest()
    several_request.CopyFrom(request)
    several_request.n = count
    for response in stub.Generate(several_request, timeout=60):
        texts[response.sample_index] += response.chunk.text
    return texts


def structured(stub, prompt, schema):
    """An object that fits the schema."""
    text, final = generate(stub, pb.GenerateRequest(text=prompt, json_schema=json.dumps(schema), max_tokens=200, temperature=0))
    if final.finish_reason == sequence_pb2.FINISH_REASON_MAX_TOKENS:
        raise ValueError(f"cut off by max_tokens: {text}")
    return json.loads(text)


def main(address):
    stub = connect(address)
    request = pb.GenerateRequest(text=PROMPT, max_tokens=40, temperature=0)

    model = stub.GetModel(pb.GetModelRequest(), timeout=10)
    print(f"== {model.name}: {model.vocabulary_size} tokens, context of {model.context_length}")

    text, final = generate(stub, request)
    print(f"== generate: {final.usage.completion_tokens} tokens in {final.rounds} rounds\n{text}")

    print("== stream")
    for piece in stream(stub, request):
        print(piece, end="", flush=True)
    print()

    text, code = first_words(stub, pb.GenerateRequest(text=PROMPT, ignore_eos=True), count=3)
    print(f"== cancel: {code.name} after {text!r}")

    try:
        generate(stub, pb.GenerateRequest(text=PROMPT, ignore_eos=True), timeout=0.05)
    except grpc.RpcError as error:
        print(f"== deadline: {failure_of(error).code.name}")

    try:
        generate(stub, pb.GenerateRequest(text=PROMPT, temperature=-1))
    except grpc.RpcError as error:
        print(f"== error: {failure_of(error)}")

    for index, text in enumerate(several(stub, pb.GenerateRequest(text=PROMPT, max_tokens=12, temperature=1, seed=7), count=3)):
        print(f"== answer {index}: {text!r}")

    print(f"== structured: {structured(stub, 'A file as JSON: ', SCHEMA)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50050")
