package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
)

// What was kept for a token in hand is not served once the token has expired.
func TestExpiredTokenIsNotServedFromDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := parsed(t, "--cache-dir="+filepath.Join(t.TempDir(), "cache"))
		claims := fmt.Sprintf(`{"sub":"system:serviceaccount:tenant-a:app","exp":%d}`, time.Now().Add(10*time.Minute).Unix())
		s, err := sourceOfToken(t.Context(), "e30."+base64.RawURLEncoding.EncodeToString([]byte(claims))+".c2ln", nil)
		if err != nil {
			t.Fatal(err)
		}
		refused := errors.New("expired")
		mints := 0
		get := func() error {
			_, err := id.get(t.Context(), s, wanted("access-token", func(context.Context, []auth.Option) (*credential, error) {
				if mints++; mints > 1 {
					return nil, refused
				}
				return bearer("t", time.Now().Add(time.Hour)), nil
			}))
			return err
		}
		for range 2 {
			if err := get(); err != nil || mints != 1 {
				t.Fatalf("after %d exchanges: %v", mints, err)
			}
		}
		time.Sleep(10 * time.Minute) // of the bubble
		if err := get(); !errors.Is(err, refused) {
			t.Errorf("the library was not asked: %v", err)
		}
	})
}
