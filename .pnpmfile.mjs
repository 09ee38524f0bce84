// Removes the export condition for sources from packed manifests, because sources are not packed.
export const hooks = {
  beforePacking: (manifest) => ({ ...manifest, exports: withoutSources(manifest.exports) }),
};

function withoutSources(exports) {
  if (typeof exports !== 'object' || exports === null) return exports;
  const entries = Object.entries(exports).filter(([condition]) => condition !== '@framework/source');
  return Object.fromEntries(entries.map(([name, target]) => [name, withoutSources(target)]));
}
