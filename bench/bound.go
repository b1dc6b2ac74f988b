package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
)

// boundCache is the least that a cache of tokens is: an LRU list under a lock,
// with an expiry.
type boundCache struct {
	mu      sync.Mutex
	entries *simplelru.LRU[[sha256.Size]byte, *boundToken]
}

type boundToken struct {
	expires                  time.Time
	id, secret, sessionToken string
}

func newBoundCache(size int) (*boundCache, error) {
	entries, err := simplelru.NewLRU[[sha256.Size]byte, *boundToken](size, nil)
	return &boundCache{entries: entries}, err
}

func (c *boundCache) add(text []byte, t *boundToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Add(sha256.Sum256(text), t)
}

func (c *boundCache) get(key [sha256.Size]byte) *boundToken {
	now := time.Now()
	c.mu.Lock()
	t, ok := c.entries.Get(key)
	c.mu.Unlock()
	if !ok || !now.Before(t.expires) {
		return nil
	}
	return t
}

// keyText is what a key is made of, more or less.
const keyText = 256

// boundAdapter is the lower bound of a hit of an adapter, which knows its key.
func boundAdapter() (op, error) {
	c, err := newBoundCache(1000)
	if err != nil {
		return nil, err
	}
	text, want := make([]byte, keyText), &boundToken{expires: time.Now().Add(time.Hour)}
	c.add(text, want)
	key := sha256.Sum256(text)
	return func(n int) error {
		for range n {
			if c.get(key) != want {
				return fmt.Errorf("the lower bound missed")
			}
		}
		return nil
	}, nil
}

// boundHit is the lower bound of a hit. With a tenant, its ServiceAccount is
// read first, as the libraries do.
func boundHit(w *environment, t *tenant) (op, error) {
	c, err := newBoundCache(1000)
	if err != nil {
		return nil, err
	}
	want := &boundToken{expires: time.Now().Add(time.Hour)}
	c.add(make([]byte, keyText), want)
	accounts := sync.Pool{New: func() any { return &corev1.ServiceAccount{} }}
	ctx := context.Background()
	return func(n int) error {
		text := make([]byte, keyText)
		for range n {
			if t != nil {
				sa, _ := accounts.Get().(*corev1.ServiceAccount)
				if err := w.kube.Get(ctx, t.key, sa); err != nil {
					return err
				}
				accounts.Put(sa)
			}
			if c.get(sha256.Sum256(text)) != want {
				return fmt.Errorf("the lower bound missed")
			}
		}
		return nil
	}, nil
}

// post is the lower bound of an exchange: the request that both libraries make,
// and reading the answer.
func post(w *environment, t *tenant) error {
	form := url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn":         {roleOf(t.key.Namespace)},
		"RoleSessionName": {"bench"}, "WebIdentityToken": {t.jwt}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://sts."+region+".amazonaws.com/",
		strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "<SessionToken>") {
		return fmt.Errorf("STS answered %d", resp.StatusCode)
	}
	return nil
}
