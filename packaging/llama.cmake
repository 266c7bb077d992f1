# Read by llama-cpp-python's build (CMAKE_PROJECT_llama_cpp_INCLUDE) where its project begins.

# Leave out llama.cpp's helper library for its own command line tools. The bindings do not use it unless they are to read
# pictures, and it is nearly half of the compilation.
if(NOT LLAVA_BUILD)
  set(LLAMA_BUILD_COMMON OFF)
endif()

# Let a thread that has waited for the others for 30 microseconds go to sleep. The threads of a forward pass wait for each
# other some hundred times. By itself llama.cpp lets them spin until the last one has come; where another program wants
# the processor, they can spin on the very core that the last one needs, for a time slice each time.
set(barrier_file "${PROJECT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-cpu/ggml-cpu.c")
set(barrier_begins "void ggml_barrier(struct ggml_threadpool * tp) {\n")
set(barrier_spins "    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
")
set(barrier_opens "        atomic_fetch_add_explicit(&tp->n_barrier_passed, 1, memory_order_seq_cst);
        return;
")
set(barrier_waits [==[
#ifndef GGML_USE_OPENMP
static atomic_int ggml_barrier_sleepers = 0;

static void ggml_barrier_wait(struct ggml_threadpool * tp, int n_passed) {
    int64_t patience_ends = 0;
    for (int turn = 1; atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed; ++turn) {
        ggml_thread_cpu_relax();
        if (turn % 64 != 0) {
            continue;
        }
        const int64_t now = ggml_time_us();
        if (patience_ends == 0) {
            patience_ends = now + 30;
        }
        if (now >= patience_ends) {
            // Told before looking again; the last thread opens the barrier before it asks whether anybody sleeps.
            atomic_fetch_add_explicit(&ggml_barrier_sleepers, 1, memory_order_seq_cst);
            ggml_mutex_lock_shared(&tp->mutex);
            while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_seq_cst) == n_passed) {
                ggml_cond_wait(&tp->cond, &tp->mutex);
            }
            ggml_mutex_unlock_shared(&tp->mutex);
            atomic_fetch_add_explicit(&ggml_barrier_sleepers, -1, memory_order_seq_cst);
            return;
        }
    }
}

static void ggml_barrier_wake(struct ggml_threadpool * tp) {
    if (atomic_load_explicit(&ggml_barrier_sleepers, memory_order_seq_cst) > 0) {
        ggml_mutex_lock(&tp->mutex);
        ggml_cond_broadcast(&tp->cond);
        ggml_mutex_unlock(&tp->mutex);
    }
}
#endif

]==])
file(READ "${barrier_file}" source)
string(FIND "${source}" "ggml_barrier_wait" is_changed)
if(is_changed EQUAL -1)
  foreach(part IN ITEMS "${barrier_begins}" "${barrier_spins}" "${barrier_opens}")
    string(FIND "${source}" "${part}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "packaging/llama.cmake does not know this llama.cpp: ggml_barrier() reads differently.")
    endif()
  endforeach()
  string(REPLACE "${barrier_spins}" "    ggml_barrier_wait(tp, n_passed);\n" source "${source}")
  string(REPLACE "        return;\n" "        ggml_barrier_wake(tp);\n        return;\n" barrier_wakes "${barrier_opens}")
  string(REPLACE "${barrier_opens}" "${barrier_wakes}" source "${source}")
  string(REPLACE "${barrier_begins}" "${barrier_waits}${barrier_begins}" source "${source}")
  file(WRITE "${barrier_file}" "${source}")
endif()

# Let products of a half-precision matrix with one row be computed as those with several rows are, whose sums do not depend
# on how many rows there are. Attention over an F16 cache then gives the same bits in a verify as token by token, which is
# what EXACT mode needs. By itself llama.cpp takes another kernel for one row.
set(product_file "${PROJECT_SOURCE_DIR}/vendor/llama.cpp/ggml/src/ggml-cpu/llamafile/sgemm.cpp")
set(product_of_one_row "    if (n < 2)
        return false;
")
set(product_of_one_half_row "    if (n < 2 && Atype != GGML_TYPE_F16)
        return false;
")
file(READ "${product_file}" source)
string(FIND "${source}" "${product_of_one_half_row}" is_changed)
if(is_changed EQUAL -1)
  string(FIND "${source}" "${product_of_one_row}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "packaging/llama.cmake does not know this llama.cpp: llamafile_sgemm() reads differently.")
  endif()
  string(REPLACE "${product_of_one_row}" "${product_of_one_half_row}" source "${source}")
  file(WRITE "${product_file}" "${source}")
endif()
