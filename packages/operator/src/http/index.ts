export { operatorApp, type OperatorAppOptions } from './operator-app.js';
export { operatorTokenMin } from './access.js';
export type { ConsoleFile, ConsoleFiles } from './console-files.js';
