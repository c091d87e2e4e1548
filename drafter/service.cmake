# The story, free of gRPC and of models; and the edge around it.
arborist_library(arborist_speculation
  SOURCES draft_filter.cc drafter_metrics.cc fault_points.cc late_features.cc round_rules.cc speculation_loop.cc
  LINK arborist_base arborist_grammar arborist_metrics arborist_tensor arborist_tree arborist_rpc)
arborist_library(arborist_drafter_service
  SOURCES grpc_verifier_stream.cc sequence_table.cc service.cc speculate_codec.cc speculate_reactor.cc
    verifier_client.cc worker_pool.cc
  LINK arborist_base arborist_rpc arborist_proto arborist_speculation Threads::Threads)
arborist_library(arborist_drafter_fakes
  SOURCES testing/counting_proposer.cc testing/fake_verifier_service.cc
  LINK arborist_base arborist_tree arborist_rpc arborist_proto)
arborist_test(drafter_service_test
  SOURCES draft_filter_test.cc drafter_metrics_test.cc round_rules_test.cc service_test.cc service_faults_test.cc
  LINK arborist_drafter_service arborist_drafter_fakes)

arborist_test(late_features_test SOURCES late_features_test.cc LINK arborist_speculation)
arborist_library(arborist_drafter_config SOURCES config.cc LINK arborist_device_config arborist_rpc arborist_proto)
arborist_test(drafter_config_test SOURCES config_test.cc LINK arborist_drafter_config)
if(TARGET arborist_kernels)
  add_executable(arborist-drafter main.cc run.cc)
  target_link_libraries(arborist-drafter PRIVATE arborist_proposers arborist_drafter_service arborist_drafter_config
    arborist_kernels)
endif()
