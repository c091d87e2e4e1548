# The edge: protobuf and gRPC stop here.
arborist_library(arborist_verifier_service
  SOURCES constraint_codec.cc constraint_compiler.cc sampling_codec.cc service.cc verify_codec.cc verify_reactor.cc
  LINK arborist_base arborist_grammar arborist_tree arborist_rpc arborist_proto absl::flat_hash_map)
arborist_test(verifier_codec_test
  SOURCES verify_codec_test.cc
  LINK arborist_verifier_service)
arborist_test(verifier_service_test
  SOURCES constraint_service_test.cc service_test.cc service_refusals_test.cc testing/fake_verifier.cc
  LINK arborist_verifier_service)

arborist_library(arborist_verifier_monitor SOURCES budget_monitor.cc shadow_monitor.cc step_monitor.cc LINK arborist_metrics absl::str_format)
arborist_test(shadow_monitor_test SOURCES shadow_monitor_test.cc
  LINK arborist_verifier_monitor arborist_verifier_testing arborist_metrics arborist_rpc)

arborist_test(step_monitor_test SOURCES step_monitor_test.cc testing/fake_verifier.cc
  LINK arborist_verifier_monitor arborist_tree)
arborist_test(budget_monitor_test SOURCES budget_monitor_test.cc LINK arborist_verifier_monitor arborist_metrics)

arborist_library(arborist_verifier_config SOURCES config.cc LINK arborist_device_config arborist_rpc arborist_proto arborist_tokenizer)
arborist_test(verifier_config_test SOURCES config_test.cc LINK arborist_verifier_config)
if(TARGET arborist_kernels)
  add_executable(arborist-verifier main.cc run.cc)
  target_link_libraries(arborist-verifier PRIVATE arborist_verifier arborist_verifier_service arborist_verifier_config arborist_verifier_monitor
    arborist_model arborist_kernels arborist_projection arborist_weights)
endif()
