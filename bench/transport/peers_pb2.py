"""The result of protoc for: service Peers { rpc Ask(Features) returns (Advice); }"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_file = descriptor_pb2.FileDescriptorProto(name="peers.proto", package="peers", syntax="proto3")
for _name, _field, _type, _label in (
    ("Features", "x", _FIELD.TYPE_FLOAT, _FIELD.LABEL_REPEATED),
    ("Advice", "advice", _FIELD.TYPE_INT64, _FIELD.LABEL_OPTIONAL),
):
    _file.message_type.add(name=_name).field.add(name=_field, number=1, type=_type, label=_label)
_service = _file.service.add(name="Peers")
_service.method.add(name="Ask", input_type=".peers.Features", output_type=".peers.Advice")
descriptor_pool.Default().Add(_file)
_types = descriptor_pool.Default().FindFileByName("peers.proto").message_types_by_name
Features, Advice = (message_factory.GetMessageClass(_types[n]) for n in ("Features", "Advice"))
