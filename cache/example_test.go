package cache_test

import (
	"context"
	"crypto/sha256"
	"errors"
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

// A program caches the sessions of a database. A key that fails backs off, and
// the sessions of other users are still served.
func Example() {
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	logins := 0
	logIn := func(user string) (*session, error) {
		logins++
		if user != "app" {
			return nil, fmt.Errorf("the database does not know %q", user)
		}
		return &session{id: fmt.Sprintf("session %d", logins), expires: time.Now().Add(time.Hour)}, nil
	}
	request := func(user string) cache.Request {
		return cache.Request{
			Key:      sha256.Sum256([]byte("service=db\nuser=" + user + "\n")), // everything that shapes the session
			Tenant:   "tenant-a",
			Provider: "db",
			Mint: func(context.Context, []cache.Token) (cache.Minted, error) {
				s, err := logIn(user)
				return cache.Minted{Token: s}, err
			},
		}
	}
	for _, user := range []string{"app", "app", "thief", "thief", "app"} {
		token, retrieved, err := tokens.GetOrSet(context.Background(), request(user))
		if err != nil {
			_, heldBack := errors.AsType[*cache.BackoffError](err)
			fmt.Printf("%s, held back: %t\n", err, heldBack)
			continue
		}
		if s, ok := token.(*session); ok {
			fmt.Printf("%s, from the cache: %t\n", s.id, retrieved)
		}
	}
	fmt.Println(logins, "logins")
	// Output:
	// session 1, from the cache: false
	// session 1, from the cache: true
	// the database does not know "thief", held back: false
	// the database does not know "thief", held back: true
	// session 1, from the cache: true
	// 2 logins
}
