package registration

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Reasons returns the reasons of each row.
func Reasons() (all []string) {
	for _, r := range newExamination(Config{}).remedies(object{}) {
		all = append(all, strings.Fields(r.reasons)...)
	}
	return all
}

// Remedies returns every row, for each kind of agent, hub and object.
func Remedies(config Config) (all []doctor.Remedy) {
	for _, o := range []object{{}, {request: "request-1"}, {request: "request-1", addOn: "search"}} {
		for _, vary := range []func(e *examination){
			func(*examination) {},
			func(e *examination) { e.klusterlet = &klusterlet{} },
			func(e *examination) {
				e.cluster = &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{awsirsa.ARNAnnotation: "x"}}}
			},
		} {
			e := newExamination(config)
			vary(e)
			for _, r := range e.remedies(o) {
				all = append(all, r.remedy)
			}
		}
	}
	return all
}
