"""Triton kernels: the file of a kernel has the name of its workload. Importing one needs torch and triton."""
