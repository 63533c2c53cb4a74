package emulator

// asAzureByDefault returns how servers behave whose configuration does not say. It is not a
// nil pointer.
var asAzureByDefault = func() *AsAzure { return &AsAzure{} }

// orDefault returns a, or the default if a is nil.
func (a *AsAzure) orDefault() *AsAzure {
	if a == nil {
		return asAzureByDefault()
	}
	return a
}
