import { transform } from 'esbuild';

const TYPESCRIPT = /\.[cm]?tsx?$/;
const DECORATOR = /^\s*@[A-Za-z_$]/m;

/** A vite plugin that compiles standard decorators, which vitest's own compiler leaves as they are. */
export function standardDecorators() {
  return {
    name: 'standard-decorators',
    enforce: 'pre',
    async transform(code, id) {
      const [file] = id.split('?');
      if (!TYPESCRIPT.test(file) || !DECORATOR.test(code)) return undefined;
      const result = await transform(code, {
        loader: 'ts',
        target: 'es2022',
        sourcemap: true,
        sourcefile: file,
      });
      return { code: result.code, map: result.map };
    },
  };
}
