package cache_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/workloadid/workloadid/cache"
)

// session is a credential of some service.
type session struct {
	id      string
	expires time.Time
}

func (s *session) GetDuration() time.Duration { return time.Until(s.expires) }

func Example() {
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	logins := 0
	request := cache.Request{
		Key:    sha256.Sum256([]byte("service=db\nuser=app\n")),
		Tenant: "tenant-a",
		Mint: func(context.Context, []cache.Token) (cache.Minted, error) {
			logins++
			return cache.Minted{Token: &session{id: fmt.Sprintf("session %d", logins), expires: time.Now().Add(time.Hour)}}, nil
		},
	}
	for range 3 {
		token, retrieved, err := tokens.GetOrSet(context.Background(), request)
		if err != nil {
			fmt.Println(err)
			return
		}
		if s, ok := token.(*session); ok {
			fmt.Printf("%s, from the cache: %t\n", s.id, retrieved)
		}
	}
	// Output:
	// session 1, from the cache: false
	// session 1, from the cache: true
	// session 1, from the cache: true
}
