"""What `shmbridge run` does: finds the compiler, watches over the policy, and counts its
decisions."""
