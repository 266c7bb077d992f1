"""llama.cpp: the only room that imports llama_cpp, and once a model is used. Knows no chat and no Qt."""
