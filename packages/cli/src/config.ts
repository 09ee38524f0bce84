export { readConfigTree } from './config/config-file.js';
export { type SectionSchemas, withEnvironment } from './config/environment-values.js';
