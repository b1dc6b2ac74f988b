package directory_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/directory"
)

// A program opens the store and gives it to an issuer.Publisher, which writes
// like this.
func Example() {
	web, err := os.MkdirTemp("", "oidc-") // in a program: /var/www/oidc/cluster-1
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(web)
	store, err := directory.Open(web)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Write(context.Background(), issuer.KeysFile, []byte(`{"keys":[]}`), ""); err != nil {
		fmt.Println(err)
		return
	}
	content, err := os.ReadFile(filepath.Join(web, "openid", "v1", "jwks"))
	fmt.Println(string(content), err)
	// Output: {"keys":[]} <nil>
}
