"""A client that knows nothing but reflection, as grpcurl does: asks the server what it offers and calls that."""
import queue

import grpc
import reflection_pb2
import reflection_pb2_grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


class Reflected:
    """One server. Messages are dictionaries in protobuf's JSON form."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address)
        self.pool = descriptor_pool.DescriptorPool()
        self.known = set()

    def close(self):
        self.channel.close()

    def ask(self, **request):
        """One question on a stream of its own."""
        questions = queue.SimpleQueue()
        questions.put(reflection_pb2.ServerReflectionRequest(**request))
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        call = stub.ServerReflectionInfo(iter(questions.get, None), timeout=20)
        answer = next(call)
        questions.put(None)
        if answer.HasField("error_response"):
            raise LookupError(f"{request}: {answer.error_response.error_message}")
        return answer

    def services(self):
        return sorted(service.name for service in self.ask(list_services="*").list_services_response.service)

    def load(self, **request):
        """Adds the file that is asked for, after the files that it imports."""
        for data in self.ask(**request).file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            if file.name in self.known:
                continue
            self.known.add(file.name)
            for name in file.dependency:
                if name not in self.known:
                    self.load(file_by_filename=name)
            self.pool.Add(file)

    def method(self, service, method):
        try:
            found = self.pool.FindServiceByName(service)
        except KeyError:
            self.load(file_containing_symbol=service)
            found = self.pool.FindServiceByName(service)
        return found.methods_by_name[method]

    def message(self, descriptor, /, **fields):
        return json_format.ParseDict(fields, self.type_of(descriptor)())

    def type_of(self, descriptor):
        return message_factory.MessageFactory(self.pool).GetPrototype(descriptor)

    def call(self, service, method, /, **fields):
        """Responses of a method that takes one request: a list for one that streams them."""
        found = self.method(service, method)
        response = self.type_of(found.output_type)
        path = f"/{service}/{method}"
        options = {"request_serializer": lambda message: message.SerializeToString(), "response_deserializer": response.FromString}
        request = self.message(found.input_type, **fields)
        if self.streams(service, method):
            return [as_dict(answer) for answer in self.channel.unary_stream(path, **options)(request, timeout=60)]
        return as_dict(self.channel.unary_unary(path, **options)(request, timeout=60))

    def streams(self, service, method):
        """Python's descriptors do not say whether a method streams; the file's own message does."""
        file = descriptor_pb2.FileDescriptorProto()
        self.pool.FindServiceByName(service).file.CopyToProto(file)
        return any(entry.server_streaming for listed in file.service for entry in listed.method
                   if f"{file.package}.{listed.name}" == service and entry.name == method)


def as_dict(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)
