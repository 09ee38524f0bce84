import type { Options } from 'tsup';

const selfNamed = /^var (\w+) = class _\1(?!\w)/gm;

/**
 * Keeps the names of classes, which errors show: esbuild turns a class that refers to itself into `var Id = class _Id`.
 *
 * Its option `keepNames` would be costly: it defines the names of inner functions again whenever those are created. A space
 * replaces the underscore, so that source maps stay exact.
 */
const classNames: NonNullable<Options['plugins']>[number] = {
  name: 'class-names',
  renderChunk: (code) => {
    const names = Array.from(code.matchAll(selfNamed), ([, name]) => name);
    if (names.length === 0) return undefined;
    return { code: code.replace(new RegExp(`(?<![\\w$.#])_(?=(?:${names.join('|')})(?![\\w$]))`, 'g'), ' ') };
  },
};

/** How the packages are built. Declarations come from tsc: TypeScript 7 has no JavaScript API that tsup could call. */
export const packageBuild = {
  format: 'esm',
  target: 'es2022',
  platform: 'node',
  sourcemap: true,
  plugins: [classNames],
} satisfies Options;
