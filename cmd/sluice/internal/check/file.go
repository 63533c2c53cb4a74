package check

import (
	"errors"

	"github.com/sluice-go/sluice/internal/config/strictyaml"
)

// OfFile returns the findings about a file that cannot be read or is not valid. keys says where its
// keys are explained.
func OfFile(err error, keys string) (list List) {
	problems, ok := errors.AsType[strictyaml.Problems](err)
	if !ok {
		return List{found(Failed, "file", "%v", err).next("correct the path, or the rights on the file")}
	}
	for _, p := range problems {
		f := found(Failed, "file", "%v", p).next("correct the file; %s has all keys", keys)
		if unset, ok := errors.AsType[*strictyaml.UnsetError](p); ok {
			f = found(Failed, "variables", "%v", p).next("set %s where the pipeline runs; --without-secrets checks the rest of the file", unset.Variable)
		}
		list = append(list, f)
	}
	return list
}
