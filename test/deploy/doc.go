// Package deploy checks what stands in the folder deploy: that the configuration
// files load, that the documents name every key, field and value that there is, that
// the image's build commands give a static program that runs as nobody on a
// read-only root, and, where more than Go may be used (POINTSMAN_E2E, make e2e),
// that the chart renders with the real Helm to what Kubernetes' schemas accept.
package deploy
