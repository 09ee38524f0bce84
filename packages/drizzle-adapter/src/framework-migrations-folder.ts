import { fileURLToPath } from 'node:url';

/** The folder of the framework's own migrations; this file stands as deep in `src` as the bundle does in `dist`. */
export const frameworkMigrationsFolder: string = fileURLToPath(new URL('../migrations', import.meta.url));
