package diagnose

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// judgeMount looks for the projected token that the variable of the token file leads to. The webhook mounts one that fits;
// by hand everything can be missed.
func (e *examination) judgeMount(pod *corev1.Pod, c *corev1.Container, where string, file variable,
	audiences []string) (Finding, bool) {
	if !file.known {
		return unknown(e.cloud.tokenFile+" of "+where+" is not a plain value, and cannot be read here",
			"run wid doctor in the pod"), true
	}
	const remedy = "mount a projected token there: volumes[].projected.sources[].serviceAccountToken with audience and path"
	mount, rest := mountOf(c, slashed(file.value))
	if mount == nil {
		return fail(e.cloud.unset, remedy, "no volume is mounted in %s where its token file should be", where).
			with(differs(e.cloud.tokenFile, file.value, "below a volumeMount")), true
	}
	volume := volumeOf(pod, mount.Name)
	if volume == nil || volume.Projected == nil {
		return unknown("the token file of "+where+" is in the volume "+shown(mount.Name)+", whose content cannot be seen here",
			"run wid doctor in the pod").with(same(e.cloud.tokenFile, file.value)), true
	}
	source := tokenSource(volume.Projected, rest)
	if source == nil {
		return fail(e.cloud.unset, remedy, "the volume of the token file in %s projects no token to that path", where).
			with(differs(e.cloud.tokenFile, file.value, projectedPaths(mount, volume.Projected))), true
	}
	if f, wrong := e.judgeMountedAudience(where, source.Audience, audiences); wrong {
		return f, true
	}
	if mount.SubPath != "" || mount.SubPathExpr != "" {
		return Finding{Result: Warn, Class: e.cloud.old, Remedy: "mount the volume itself, without subPath",
			Message: "the token of " + where + " is mounted by subPath, so it is never renewed there"}.
			with(differs("subPath", firstOf(mount.SubPath, mount.SubPathExpr), "none")), true
	}
	return Finding{}, false
}

// slashed writes a path of Windows, with or without its drive, as others are: the webhook mounts /var/run for C:\var\run.
func slashed(file string) string {
	if len(file) > 1 && file[1] == ':' {
		file = strings.ReplaceAll(file[2:], `\`, "/")
	}
	return path.Clean(file)
}

// mountOf is the mount with the longest path that the file is below, and the file's path in the volume.
func mountOf(c *corev1.Container, file string) (best *corev1.VolumeMount, rest string) {
	longest := -1
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		at := slashed(m.MountPath)
		below, ok := strings.CutPrefix(file+"/", strings.TrimSuffix(at, "/")+"/")
		if !ok || len(at) <= longest {
			continue
		}
		longest, best, rest = len(at), m, path.Join(m.SubPath, below)
	}
	return best, rest
}

func volumeOf(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

// tokenSource is nil if none leads to the path. Through subPathExpr, which only the kubelet resolves, any may.
func tokenSource(p *corev1.ProjectedVolumeSource, at string) *corev1.ServiceAccountTokenProjection {
	for i := range p.Sources {
		if t := p.Sources[i].ServiceAccountToken; t != nil && path.Clean(t.Path) == at {
			return t
		}
	}
	return nil
}

func projectedPaths(mount *corev1.VolumeMount, p *corev1.ProjectedVolumeSource) string {
	var all []string
	for i := range p.Sources {
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			all = append(all, path.Join(mount.MountPath, t.Path))
		}
	}
	return firstOf(strings.Join(all, " "), "a serviceAccountToken in volumes[].projected.sources")
}

// judgeMountedAudience is sure of audiences that are another service's; others the cloud may have been told to accept.
func (e *examination) judgeMountedAudience(where, got string, audiences []string) (Finding, bool) {
	if len(audiences) == 0 || got == audiences[0] {
		return Finding{}, false
	}
	f := fail(e.cloud.wrongAudience, "set audience of the volume's serviceAccountToken in the pod's template",
		"the token that is mounted in %s has another audience than %s", where, e.cloud.name).
		with(differs("audience", firstOf(got, "none: the API server's"), audiences[0]))
	if got != "" && !isAPIServer(got) && visible(got) != visible(audiences[0]) && e.foreignAudience(got) == "" {
		f.Result = Warn
	}
	return f, true
}
