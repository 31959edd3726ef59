export { getLoadablePath, load, type Loader } from "./index.cjs";
