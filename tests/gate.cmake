# What `launch/test.sh` runs of each build: the tests with the label `gate`. The target `gate` builds the programs that they need.
#
# A unit test runs with AddressSanitizer and UndefinedBehaviorSanitizer, which see most. It runs in a second build only for one of the
# reasons below. A build has all tests, whatever the gate runs of it: `ctest --preset release` runs them all.
add_custom_target(gate)

# The release compiler makes other code of inner loops and of numbers than the sanitized build does. What draws many cases draws all
# of them there and few with a sanitizer (tests/support/draws.h).
set(FERRY_RELEASE_TESTS kernels_test model_test moe_test runtime_test schedule_test vision_tower_test)
# They count allocations, need a Vulkan device, or compute for minutes with a sanitizer.
set(FERRY_RELEASE_ONLY_TESTS allocation_test constrained_model_test message_size_test prefix_cache_test verify_test vulkan_matmul_test
  vulkan_test)
# Their code has threads that share memory. gRPC is left out, because its library is not instrumented.
set(FERRY_THREAD_TESTS base_test cluster_test coordinator_test http_test media_test moe_test picture_fetch_test profiler_recorder_test
  comm_death_test comm_faulty_links_test comm_faulty_network_test comm_gloo_group_test comm_link_death_test comm_liveness_test
  comm_local_group_test comm_mpirun_test comm_rendezvous_test comm_stream_hub_test)

# ferry_add_to_gate(TESTS...): puts tests of ctest into the gate of this build, whose programs the target `gate` has from elsewhere.
function(ferry_add_to_gate)
  foreach(test ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS gate)
  endforeach()
endfunction()

# ferry_add_program_to_gate(PROGRAM TESTS...): the same for tests that run PROGRAM, where this build is one that is to run it.
function(ferry_add_program_to_gate program)
  if(FERRY_SANITIZE MATCHES "thread")
    if(NOT program IN_LIST FERRY_THREAD_TESTS)
      return()
    endif()
  elseif(FERRY_SANITIZE)
    if(program IN_LIST FERRY_RELEASE_ONLY_TESTS)
      return()
    endif()
  elseif(NOT program IN_LIST FERRY_RELEASE_TESTS AND NOT program IN_LIST FERRY_RELEASE_ONLY_TESTS)
    return()
  endif()
  ferry_add_to_gate(${ARGN})
  add_dependencies(gate ${program})
endfunction()
