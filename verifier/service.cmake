# The edge: protobuf and gRPC stop here.
arborist_library(arborist_verifier_service
  SOURCES service.cc verify_codec.cc verify_reactor.cc
  LINK arborist_base arborist_tree arborist_rpc arborist_proto)
arborist_test(verifier_codec_test
  SOURCES verify_codec_test.cc
  LINK arborist_verifier_service)
arborist_test(verifier_service_test
  SOURCES service_test.cc testing/fake_verifier.cc
  LINK arborist_verifier_service)
