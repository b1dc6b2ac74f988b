package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A pod that would take minutes to look through is not looked through; one that is as large as pods get is.
func TestHugePods(t *testing.T) {
	t.Parallel()
	containers := func(n int) spec {
		return func(_ *world, pod *corev1.Pod) {
			for i := range n {
				c := pod.Spec.Containers[0].DeepCopy()
				c.Name = fmt.Sprint("c", i)
				pod.Spec.Containers = append(pod.Spec.Containers, *c)
			}
		}
	}
	volumes := func(n int) spec {
		return func(_ *world, pod *corev1.Pod) {
			for i := range n {
				pod.Spec.Volumes = append([]corev1.Volume{{Name: fmt.Sprint("v", i)}}, pod.Spec.Volumes...)
			}
		}
	}
	sources := func(_ *world, pod *corev1.Pod) {
		p := pod.Spec.Volumes[0].Projected
		p.Sources = append(make([]corev1.VolumeProjection, 2000), p.Sources...)
	}
	labels := func(_ *world, pod *corev1.Pod) {
		pod.Labels = map[string]string{}
		for i := range 300 {
			pod.Labels[fmt.Sprint(i)] = "x"
		}
	}
	for name, tc := range map[string]struct {
		change spec
		want   doctor.Result
	}{
		"large":      {all(volumes(150), containers(200)), doctor.Pass},
		"containers": {containers(1000), doctor.Unknown},
		"volumes":    {volumes(1100), doctor.Unknown},
		"sources":    {sources, doctor.Unknown},
		"labels":     {labels, doctor.Unknown},
		"annotation": {podAnnotation("eks.amazonaws.com/skip-containers", strings.Repeat("x,", 1<<20)), doctor.Unknown},
		"variable":   {env("X", strings.Repeat("x", 2<<20)), doctor.Unknown},
	} {
		w := newWorld(t, "aws")
		withPod(tc.change)(w)
		f := w.run().Of("pod")
		if f.Result != tc.want || f.Result != doctor.Pass && (!strings.Contains(f.Message, "larger than pods can be") || f.Remedy == "") {
			t.Errorf("%s: %.500v", name, f)
		}
	}
}
