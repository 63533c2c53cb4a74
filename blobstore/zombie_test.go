//go:build azurite

package blobstore_test

const zombie = "BLOBSTORE_ZOMBIE"

func actZombie() {}
