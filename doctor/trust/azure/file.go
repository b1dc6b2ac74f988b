package azure

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
)

// Parse reads the JSON that one of these commands prints:
//
//	az identity federated-credential list
//	az ad app federated-credential list
func Parse(content []byte) (doctor.Trust, error) {
	f := &file{}
	return f, reading.Documents(content, f.add)
}

type file struct{ credentials []credential }

func (f *file) add(document json.RawMessage) error {
	var items []*listed
	if json.Unmarshal(document, &items) != nil || items == nil {
		return errors.New("it is not a list of federated credentials of Azure")
	}
	for _, item := range items {
		if item == nil {
			return errors.New("it holds something else than federated credentials")
		}
		f.credentials = append(f.credentials, item.flat())
	}
	return nil
}

func (f *file) Anchor(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	if failure != nil {
		return *failure
	}
	return t.judge(f.credentials)
}

func (*file) Rule(context.Context, doctor.TrustQuery) doctor.Finding { return noRule() }
