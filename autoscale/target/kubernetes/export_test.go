package kubernetes

// SetServiceAccount replaces the directory of the pod's service account until the function
// that it returns is called.
func SetServiceAccount(dir string) (undo func()) {
	old := serviceAccount
	serviceAccount = dir
	return func() { serviceAccount = old }
}
