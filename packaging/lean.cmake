# Read by llama-cpp-python's build (CMAKE_PROJECT_llama_cpp_INCLUDE): leave out llama.cpp's helper library for its own
# command line tools. The bindings do not use it, and it is nearly half of the compilation.
set(LLAMA_BUILD_COMMON OFF)
